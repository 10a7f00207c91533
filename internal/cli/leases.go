package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/spf13/cobra"
)

// leaseRow is a row of the view lease_status. What a table leaves out stands in JSON.
type leaseRow struct {
	Resource             string          `json:"resource"`
	State                string          `json:"state"`
	Generation           int64           `json:"generation"`
	Owner                *string         `json:"owner"`
	Attributes           json.RawMessage `json:"attributes" table:"-"`
	AcquiredAt           time.Time       `json:"acquired_at" table:"-"`
	RenewedAt            time.Time       `json:"renewed_at" table:"-"`
	Renewals             int64           `json:"renewals" table:"-"`
	TTLMS                int64           `json:"ttl_ms" table:"-"`
	LeaseUntil           time.Time       `json:"lease_until"`
	RemainingMS          int64           `json:"remaining_ms"`
	ReleasedAt           *time.Time      `json:"released_at" table:"-"`
	AcceptedGeneration   int64           `json:"accepted_generation" table:"-"`
	Revision             int64           `json:"revision" table:"-"`
	Floor                int64           `json:"floor" table:"-"`
	BlockedByPID         *int32          `json:"blocked_by_pid" table:"sparse"`
	BlockedByUser        *string         `json:"blocked_by_user" table:"sparse"`
	BlockedByApplication *string         `json:"blocked_by_application" table:"sparse"`
	BlockedByState       *string         `json:"blocked_by_state" table:"sparse"`
	BlockedSince         *time.Time      `json:"blocked_since" table:"sparse"`
}

func newLeasesCommand(a *app) *cobra.Command {
	var flags listFlags
	var state enumFlag
	cmd := &cobra.Command{
		Use:     "leases",
		GroupID: groupInspect,
		Short:   "List the leases, and who blocks a take-over since when",
		Long: `Lists one row a resource. The columns blocked_by_* name the session whose open transaction holds the row, so
that a take-over has to wait, and blocked_since when that transaction began. Of another user's session only members of
pg_read_all_stats see more than its process id. A table shows these columns only where somebody blocks; JSON has
them always, and more.

States: live, expired (anybody may take over), released, seized (by an operator), unused (never acquired).`,
		Example: `  fencectl leases
  fencectl leases --resource 'report:*' --state expired
  fencectl leases -o json | jq '.[] | select(.blocked_by_pid != null)'`,
		Args: atMost(0),
	}
	flags.register(cmd)
	addEnum(cmd, &state, "state", "", "list this state only", "live", "expired", "released", "seized", "unused")
	cmd.RunE = a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := flags.validate(); err != nil {
			return err
		}
		where := []client.Condition{client.Glob("resource", flags.resource)}
		if state.value != "" {
			where = append(where, client.Equals("state", state.value))
		}
		return list[leaseRow](ctx, a, flags.limit, client.Selection{
			View: "lease_status",
			Columns: client.Columns(
				"resource", "state", "generation", "owner", "attributes", "acquired_at", "renewed_at", "renewals", "ttl_ms",
				"lease_until", "remaining_ms", "released_at", "accepted_generation", "revision", "floor",
				"blocked_by_pid", "blocked_by_user", "blocked_by_application", "blocked_by_state", "blocked_since"),
			Where:   where,
			OrderBy: []string{"resource"},
		})
	})
	return cmd
}
