package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

// progressPause keeps a long prune from filling the screen.
const progressPause = time.Second

func newPruneCommand(a *app) *cobra.Command {
	var olderThan durationFlag
	var batch int32
	cmd := &cobra.Command{
		Use:     "prune",
		GroupID: groupOperate,
		Short:   "Delete old records in small batches, never leases",
		Long: `Deletes records that are older than --older-than: refused calls, late publications, interventions, and operation
keys of generations that are over. Leases and current results stay, whatever their age.

Each batch is a transaction of its own. It goes on until nothing is left, or until --timeout or Ctrl-C; what was
removed until then stays removed, and the next run goes on.`,
		Example: `  fencectl prune --older-than 720h
  fencectl prune --older-than 30d --batch 5000 --timeout 10m`,
		Args: atMost(0),
	}
	cmd.Flags().Var(&olderThan, "older-than", "age from which records go, like 720h or 30d (required)")
	cmd.Flags().Int32Var(&batch, "batch", 1000, "rows of each kind in one transaction, up to 100000")
	cmd.RunE = a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if !olderThan.given {
			return usagef("missing --older-than: say from which age records go, like 30d")
		}
		return a.withDatabase(ctx, func(db *database) error {
			totals, err := a.prune(ctx, db, olderThan.ms(), batch)
			if err == nil {
				return printRows(a, totals)
			}
			if len(totals) > 0 && !a.output.isJSON() {
				_ = printRows(a, totals) // the error that is reported is the one that ended the work
			}
			return &partly{error: err, removed: totals}
		})
	})
	return cmd
}

// prune deletes batch after batch, and returns what it has deleted of each kind, also with an error.
func (a *app) prune(ctx context.Context, db *database, olderThanMS int64, batch int32) ([]procedures.PruneResult, error) {
	var totals []procedures.PruneResult
	shown := time.Now()
	for {
		var removed []procedures.PruneResult
		err := db.write(ctx, func(p procedures.Procedures) (err error) {
			removed, err = p.Prune(ctx, olderThanMS, batch)
			return err
		})
		if err != nil {
			return totals, err
		}
		more := false
		for i, row := range removed {
			if i == len(totals) {
				totals = append(totals, procedures.PruneResult{TableName: row.TableName})
			}
			totals[i].Removed += row.Removed
			more = more || row.Removed >= int64(batch)
		}
		if !more {
			return totals, nil
		}
		if a.verbose || time.Since(shown) >= progressPause {
			a.note("removed so far: %s", describeTotals(totals))
			shown = time.Now()
		}
	}
}

func describeTotals(totals []procedures.PruneResult) string {
	parts := make([]string, len(totals))
	for i, row := range totals {
		parts[i] = fmt.Sprintf("%s %d", row.TableName, row.Removed)
	}
	return strings.Join(parts, ", ")
}
