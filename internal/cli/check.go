package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type checkAnswer struct {
	procedures.CheckResult
	Resource   string `json:"resource"`
	Owner      string `json:"owner"`
	Generation int64  `json:"generation"`
}

func newCheckCommand(a *app) *cobra.Command {
	var token tokenFlags
	var policy enumFlag
	cmd := &cobra.Command{
		Use:     "check [RESOURCE]",
		GroupID: groupLease,
		Short:   "Ask whether an acquisition still counts (advice: another may take over a moment later)",
		Long: `Asks whether the acquisition that the token names still counts. Exit code 10 means that it does not.

The answer is advice and protects no write: the lease row is free again when it arrives, and another
acquisition may take over before your next statement. To fence your own writes, call fence.check in the
transaction that writes, before the first write.`,
		Example: `  fencectl check report:42 --owner w1 --generation 7
  fencectl check report:42 --owner w1 --generation 7 --policy unexpired || exit`,
		Args: atMost(1),
	}
	token.register(cmd)
	addPolicy(cmd, &policy)
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		t, err := a.token(cmd, args, token)
		if err != nil {
			return err
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := checkAnswer{Resource: t.Resource, Owner: t.Owner, Generation: t.Generation}
			err := db.write(ctx, func(p procedures.Procedures) (err error) {
				answer.CheckResult, err = p.Check(ctx, t, policy.value)
				return err
			})
			if err != nil {
				return err
			}
			a.note("advice only: outside the transaction that writes, this answer protects nothing")
			return a.answer(answer, answer.Outcome, answer.Reason, procedures.OK)
		})
	})
	return cmd
}
