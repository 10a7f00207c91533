package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type renewAnswer struct {
	procedures.RenewResult
	Resource   string `json:"resource"`
	Owner      string `json:"owner"`
	Generation int64  `json:"generation"`
}

func newRenewCommand(a *app) *cobra.Command {
	var token tokenFlags
	var ttl durationFlag
	cmd := &cobra.Command{
		Use:     "renew [RESOURCE]",
		GroupID: groupLease,
		Short:   "Let a lease last for --ttl from now",
		Long: `Lets the lease last for --ttl from now, whether that is longer or shorter than before. A lease that has run
out and that nobody took over is renewed too. It may be repeated freely.`,
		Example: `  fencectl renew report:42 --owner w1 --generation 7 --ttl 30s
  FENCE_OWNER=w1 FENCE_GENERATION=7 fencectl renew report:42 --ttl 30s`,
		Args: atMost(1),
	}
	token.register(cmd)
	cmd.Flags().Var(&ttl, "ttl", "how long from now until another may take over, like 30s (required)")
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		t, err := a.token(cmd, args, token)
		if err != nil {
			return err
		}
		if !ttl.given {
			return usagef("missing --ttl: say how long until another may take over, like 30s")
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := renewAnswer{Resource: t.Resource, Owner: t.Owner, Generation: t.Generation}
			err := db.write(ctx, func(p procedures.Procedures) (err error) {
				answer.RenewResult, err = p.Renew(ctx, t, ttl.ms())
				return err
			})
			if err != nil {
				return err
			}
			return a.answer(answer, answer.Outcome, answer.Reason, procedures.Renewed)
		})
	})
	return cmd
}
