package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type releaseAnswer struct {
	procedures.ReleaseResult
	Resource   string `json:"resource"`
	Owner      string `json:"owner"`
	Generation int64  `json:"generation"`
}

func newReleaseCommand(a *app) *cobra.Command {
	var token tokenFlags
	cmd := &cobra.Command{
		Use:     "release [RESOURCE]",
		GroupID: groupLease,
		Short:   "Give a lease back before it runs out",
		Long: `Gives the lease back, so that another owner need not wait for it to run out. Releasing it again answers
"replayed".`,
		Example: `  fencectl release report:42 --owner w1 --generation 7`,
		Args:    atMost(1),
	}
	token.register(cmd)
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		t, err := a.token(cmd, args, token)
		if err != nil {
			return err
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := releaseAnswer{Resource: t.Resource, Owner: t.Owner, Generation: t.Generation}
			err := db.write(ctx, func(p procedures.Procedures) (err error) {
				answer.ReleaseResult, err = p.Release(ctx, t)
				return err
			})
			if err != nil {
				return err
			}
			return a.answer(answer, answer.Outcome, answer.Reason, procedures.Released, procedures.Replayed)
		})
	})
	return cmd
}
