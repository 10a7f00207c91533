package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type removeAnswer struct {
	procedures.RemoveResult
	Resource   string `json:"resource"`
	Generation int64  `json:"generation"`
}

func newRemoveCommand(a *app) *cobra.Command {
	var flags interveneFlags
	cmd := &cobra.Command{
		Use:     "remove RESOURCE",
		GroupID: groupOperate,
		Short:   "Forget a resource: its lease, its current result and its operation keys",
		Long: `Forgets a resource that is no longer used, if it still has the generation that you saw and nobody holds its
lease. Its last number goes into the global floor, so that a later resource of this name starts above it.`,
		Example: `  fencectl remove report:42 --generation 7 --by anna --note 'report was retired'`,
		Args:    theResource,
	}
	flags.register(cmd)
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		params, err := flags.params(cmd, args)
		if err != nil {
			return err
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := removeAnswer{Resource: params.Resource, Generation: params.Generation}
			err := db.write(ctx, func(p procedures.Procedures) (err error) {
				answer.RemoveResult, err = p.Remove(ctx, params)
				return err
			})
			if err != nil {
				return err
			}
			switch answer.Outcome {
			case procedures.Held:
				defer a.advise(`its lease is alive: wait until it is over, or "fencectl seize" it first`)
			case procedures.NotFound:
				defer a.advise(`no such resource, or another generation by now: look again with "fencectl leases"`)
			}
			return a.answer(answer, answer.Outcome, nil, procedures.Removed)
		})
	})
	return cmd
}
