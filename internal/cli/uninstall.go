package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/spf13/cobra"
)

func newUninstallCommand(a *app) *cobra.Command {
	options := deploy.UninstallOptions{Progress: a.progress}
	cmd := &cobra.Command{
		Use:     "uninstall",
		GroupID: groupDeploy,
		Short:   "Drop the fence with all leases, and print the highest generation",
		Long: `Drops the schema fence with all that is in it, which --allow-destructive has to permit, and prints the highest
generation that was given out. To install again without repeating a number, start with "fencectl migrate --floor N".
It is printed before anything is dropped, too; a repeated call finds nothing and prints none. Roles belong to the
whole server and stay: drop them when no other database of it has the fence.`,
		Example: `  fencectl uninstall --allow-destructive
  floor=$(fencectl uninstall --allow-destructive -o json | jq -e .highest_generation)`,
		Args: atMost(0),
	}
	cmd.Flags().BoolVar(&options.AllowDestructive, "allow-destructive", false, "permit that everything is lost")
	wait := addLockTimeout(cmd)
	cmd.RunE = a.runWithin(unbounded, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		options.LockTimeout = wait.value
		return a.withDeployer(func(d *deploy.Deployer) error {
			result, err := d.Uninstall(ctx, options)
			if err != nil {
				return err
			}
			return a.printRow(result)
		})
	})
	return cmd
}
