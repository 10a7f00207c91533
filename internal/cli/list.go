package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/spf13/cobra"
)

// usualLimit keeps a list readable where there are millions of rows.
const usualLimit = 1000

// listFlags are those of every list.
type listFlags struct {
	resource string
	limit    int
}

func (l *listFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.resource, "resource", "*", "names to list: * stands for any characters, ? for one, \\ before them for themselves")
	cmd.Flags().IntVar(&l.limit, "limit", usualLimit, "list at most this many rows, 0 for all")
}

func (l *listFlags) validate() error {
	if l.limit < 0 {
		return usagef("--limit must not be negative")
	}
	return checkText("--resource", l.resource)
}

// list reads a selection into rows of T, and prints them.
func list[T any](ctx context.Context, a *app, limit int, selection client.Selection) error {
	return a.withDatabase(ctx, func(db *database) error {
		if limit > 0 {
			selection.Limit = int64(limit) + 1
		}
		var found []T
		err := db.read(ctx, func(session client.Session) (err error) {
			found, err = client.Select[T](ctx, session, selection)
			return err
		})
		if err != nil {
			return err
		}
		if limit > 0 && len(found) > limit {
			found = found[:limit]
			a.note("there are more than %d rows: narrow the list with --resource, or raise --limit", limit)
		}
		return printRows(a, found)
	})
}
