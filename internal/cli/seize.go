package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type seizeAnswer struct {
	procedures.SeizeResult
	Resource string `json:"resource"`
}

func newSeizeCommand(a *app) *cobra.Command {
	var flags interveneFlags
	cmd := &cobra.Command{
		Use:     "seize RESOURCE",
		GroupID: groupOperate,
		Short:   "End an acquisition: its writes are refused from then on",
		Long: `Gives out a new generation that has no owner: the holder's writes are refused as superseded, and anybody may
acquire. It acts only while the resource still has the generation that you saw, and waits (up to 5 seconds) for an
open fenced transaction.`,
		Example: `  fencectl seize report:42 --generation 7 --by anna --note 'host lost, ticket 815'`,
		Args:    theResource,
	}
	flags.register(cmd)
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		params, err := flags.params(cmd, args)
		if err != nil {
			return err
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := seizeAnswer{Resource: params.Resource}
			err := db.write(ctx, func(p procedures.Procedures) (err error) {
				answer.SeizeResult, err = p.Seize(ctx, params)
				return err
			})
			if err != nil {
				return err
			}
			if answer.Outcome == procedures.Refused {
				defer a.advise(`the resource has another generation by now, or none: look again with "fencectl leases"`)
			}
			return a.answer(answer, answer.Outcome, nil, procedures.Seized, procedures.Replayed)
		})
	})
	return cmd
}
