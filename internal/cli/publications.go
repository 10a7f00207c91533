package cli

import (
	"context"
	"slices"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/spf13/cobra"
)

// publicationRow is a row of the view publications.
type publicationRow struct {
	Resource     string     `json:"resource"`
	Revision     int64      `json:"revision"`
	Generation   int64      `json:"generation"`
	Owner        string     `json:"owner"`
	ContentType  string     `json:"content_type"`
	PayloadBytes int64      `json:"payload_bytes"`
	SourceAsOf   *time.Time `json:"source_as_of"`
	PublishedAt  time.Time  `json:"published_at"`
	LateMS       *int64     `json:"late_ms"`
}

type publicationWithPayload struct {
	publicationRow
	Payload string `json:"payload"`
}

// lateRow is a row of the view late_publications.
type lateRow struct {
	Resource    string    `json:"resource"`
	Revision    int64     `json:"revision"`
	Generation  int64     `json:"generation"`
	Owner       string    `json:"owner"`
	LateMS      int64     `json:"late_ms"`
	PublishedAt time.Time `json:"published_at"`
}

func newPublicationsCommand(a *app) *cobra.Command {
	var flags listFlags
	var late, payload bool
	cmd := &cobra.Command{
		Use:     "publications",
		GroupID: groupInspect,
		Short:   "List the current results, or the ones that came late",
		Long: `Lists the current result of each resource, without its content unless --payload is given.

--late lists the publishes that were accepted after their lease had run out, newest first, until "fencectl prune"
removes them: work that outlives its lease.`,
		Example: `  fencectl publications --resource 'report:*'
  fencectl publications --late
  fencectl publications --resource report:42 --payload -o json | jq -r '.[0].payload'`,
		Args: atMost(0),
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&late, "late", false, "list accepted publishes whose lease had run out")
	cmd.Flags().BoolVar(&payload, "payload", false, "show the content, too")
	cmd.MarkFlagsMutuallyExclusive("late", "payload")
	cmd.RunE = a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := flags.validate(); err != nil {
			return err
		}
		where := []client.Condition{client.Glob("resource", flags.resource)}
		if late {
			return list[lateRow](ctx, a, flags.limit, client.Selection{
				View:    "late_publications",
				Columns: client.Columns("resource", "revision", "generation", "owner", "late_ms", "published_at"),
				Where:   where,
				OrderBy: []string{"-published_at", "resource", "revision"},
			})
		}
		columns := slices.Concat(client.Columns("resource", "revision", "generation", "owner", "content_type"),
			[]client.Column{client.Bytes("payload")}, client.Columns("source_as_of", "published_at", "late_ms"))
		results := client.Selection{View: "publications", Columns: columns, Where: where, OrderBy: []string{"resource"}}
		if payload {
			results.Columns = append(columns, client.Columns("payload")...)
			return list[publicationWithPayload](ctx, a, flags.limit, results)
		}
		return list[publicationRow](ctx, a, flags.limit, results)
	})
	return cmd
}
