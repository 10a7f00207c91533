package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

type raiseFloorAnswer struct {
	procedures.RaiseFloorResult
	// Resource is NULL for the floor of all resources.
	Resource *string `json:"resource"`
}

func newRaiseFloorCommand(a *app) *cobra.Command {
	var all bool
	var atLeast int64
	cmd := &cobra.Command{
		Use:     "raise-floor (RESOURCE | --all)",
		GroupID: groupOperate,
		Short:   "Let later generations start above a number, after a restore or a move",
		Long: `Makes later acquisitions start above --at-least: after a restore from a backup, or a move from another database.
It does not supersede a holder. With --all it waits (up to 5 seconds) for the acquisitions under way.`,
		Example: `  fencectl raise-floor report:42 --at-least 1000
  fencectl raise-floor --all --at-least 4294967296`,
		Args: atMost(1),
	}
	cmd.Flags().BoolVar(&all, "all", false, "for all resources, also those to come")
	cmd.Flags().Int64Var(&atLeast, "at-least", 0, "later generations are higher than this (required)")
	// It fails only for a flag that is not there.
	if err := cmd.MarkFlagRequired("at-least"); err != nil {
		panic(err)
	}
	cmd.RunE = a.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		var resource *string
		switch {
		case all && len(args) > 0:
			return usagef("give RESOURCE or --all, not both")
		case !all && len(args) == 0:
			return usagef("missing RESOURCE; --all is for all of them")
		case !all:
			resource = &args[0]
			if err := checkText("RESOURCE", args[0]); err != nil {
				return err
			}
		}
		return a.withDatabase(ctx, func(db *database) error {
			answer := raiseFloorAnswer{Resource: resource}
			err := db.write(ctx, func(p procedures.Procedures) (err error) {
				answer.RaiseFloorResult, err = p.RaiseFloor(ctx, resource, atLeast)
				return err
			})
			if err != nil {
				return err
			}
			return a.answer(answer, answer.Outcome, nil, procedures.Raised, procedures.Unchanged)
		})
	})
	return cmd
}
