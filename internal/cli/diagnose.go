package cli

import (
	"context"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type diagnoseAnswer struct {
	procedures.DiagnoseResult
	Resource   string `json:"resource"`
	Owner      string `json:"owner"`
	Generation int64  `json:"generation"`
}

func newDiagnoseCommand(a *app) *cobra.Command {
	var token tokenFlags
	var policy enumFlag
	var attemptedAt string
	cmd := &cobra.Command{
		Use:     "diagnose [RESOURCE]",
		GroupID: groupLease,
		Short:   "Explain why a conditional UPDATE of your own changed nothing",
		Long: `Explains why a conditional UPDATE of your own changed nothing. It reads later than that UPDATE, so it names a
cause only where the row proves it, and says "unknown" otherwise. It changes nothing and exits with 0.

--attempted-at is the database's clock, read before the UPDATE ("SELECT clock_timestamp()"); without it the
answer is "unknown" wherever time matters.`,
		Example: `  fencectl diagnose report:42 --owner w1 --generation 7 --attempted-at 2026-01-31T08:00:00.123456Z
  fencectl diagnose report:42 --owner w1 --generation 7 --policy unexpired -o json`,
		Args: atMost(1),
	}
	token.register(cmd)
	addPolicy(cmd, &policy)
	cmd.Flags().StringVar(&attemptedAt, "attempted-at", "", "the database's clock before the UPDATE, RFC 3339")
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		t, err := a.token(cmd, args, token)
		if err != nil {
			return err
		}
		var attempted *time.Time
		if cmd.Flags().Changed("attempted-at") {
			if attempted, err = parseTime("--attempted-at", attemptedAt); err != nil {
				return err
			}
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := diagnoseAnswer{Resource: t.Resource, Owner: t.Owner, Generation: t.Generation}
			err := db.read(ctx, func(session client.Session) (err error) {
				answer.DiagnoseResult, err = session.Procedures().Diagnose(ctx, t, attempted, policy.value)
				return err
			})
			if err != nil {
				return err
			}
			return a.printRow(answer)
		})
	})
	return cmd
}
