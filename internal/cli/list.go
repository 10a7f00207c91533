package cli

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
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

// list runs a query whose columns are the fields of T, and prints the rows. The query must take its limit as $1.
func list[T any](ctx context.Context, a *app, limit int, query string, args ...any) error {
	return a.withDatabase(ctx, func(db *database) error {
		var atMost *int64 // LIMIT NULL is none
		if limit > 0 {
			more := int64(limit) + 1
			atMost = &more
		}
		var found []T
		err := db.read(ctx, func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, query, append([]any{atMost}, args...)...)
			if err != nil {
				return err
			}
			found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
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

// like turns a glob into the pattern of LIKE, whose fixed beginning the database can look up in an index.
func like(glob string) string {
	var pattern strings.Builder
	literal := func(r rune) {
		if strings.ContainsRune(`%_\`, r) {
			pattern.WriteByte('\\')
		}
		pattern.WriteRune(r)
	}
	escaped := false
	for _, r := range glob {
		switch {
		case escaped:
			literal(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '*':
			pattern.WriteByte('%')
		case r == '?':
			pattern.WriteByte('_')
		default:
			literal(r)
		}
	}
	if escaped {
		literal('\\')
	}
	return pattern.String()
}
