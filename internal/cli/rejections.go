package cli

import (
	"context"
	"slices"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/spf13/cobra"
)

// rejectionRow is a row of the view rejections.
type rejectionRow struct {
	Resource           string     `json:"resource"`
	Operation          string     `json:"operation"`
	Reason             string     `json:"reason"`
	Generation         int64      `json:"generation"`
	Owner              string     `json:"owner"`
	Occurrences        int64      `json:"occurrences"`
	FirstAt            time.Time  `json:"first_at" table:"-"`
	LastAt             time.Time  `json:"last_at"`
	ObservedGeneration *int64     `json:"observed_generation"`
	ObservedOwner      *string    `json:"observed_owner"`
	ObservedLeaseUntil *time.Time `json:"observed_lease_until" table:"-"`
	ObservedAt         time.Time  `json:"observed_at" table:"-"`
}

// reasonRow counts the rejections of one operation for one reason.
type reasonRow struct {
	Operation   string    `json:"operation"`
	Reason      string    `json:"reason"`
	Occurrences int64     `json:"occurrences"`
	Resources   int64     `json:"resources"`
	FirstAt     time.Time `json:"first_at"`
	LastAt      time.Time `json:"last_at"`
}

func newRejectionsCommand(a *app) *cobra.Command {
	var flags listFlags
	var since durationFlag
	var by enumFlag
	cmd := &cobra.Command{
		Use:     "rejections",
		GroupID: groupInspect,
		Short:   "List the calls that the fence refused, and why",
		Long: `Lists refused calls, newest first, or with --by reason how many there were for each operation and reason.
Repeats of one call within a minute are counted in one row.

Superseded is the fence at work. Expired, and late publications ("fencectl publications --late"), mean that the
work outlives its lease.`,
		Example: `  fencectl rejections --since 1h
  fencectl rejections --since 7d --by reason
  fencectl rejections --resource 'report:*' -o jsonl`,
		Args: atMost(0),
	}
	flags.register(cmd)
	cmd.Flags().Var(&since, "since", "list what was refused within this time, like 1h or 7d (default: all)")
	addEnum(cmd, &by, "by", "", "count instead of listing", "reason")
	cmd.RunE = a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := flags.validate(); err != nil {
			return err
		}
		where := []client.Condition{client.Glob("resource", flags.resource)}
		if since.given {
			where = append(where, client.Within("last_at", since.ms()))
		}
		if by.value == "reason" {
			return list[reasonRow](ctx, a, flags.limit, client.Selection{
				View: "rejections",
				Columns: slices.Concat(client.Columns("operation", "reason"), []client.Column{
					client.Sum("occurrences"), client.Distinct("resource"), client.Min("first_at"), client.Max("last_at")}),
				Where:   where,
				GroupBy: []string{"operation", "reason"},
				OrderBy: []string{"-3", "operation", "reason"},
			})
		}
		return list[rejectionRow](ctx, a, flags.limit, client.Selection{
			View: "rejections",
			Columns: client.Columns("resource", "operation", "reason", "generation", "owner", "occurrences", "first_at", "last_at",
				"observed_generation", "observed_owner", "observed_lease_until", "observed_at"),
			Where:   where,
			OrderBy: []string{"-last_at", "resource", "operation", "reason"},
		})
	})
	return cmd
}
