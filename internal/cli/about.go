package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/spf13/cobra"
)

func newAboutCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "about",
		GroupID: groupInspect,
		Short:   "Show which contract the database speaks",
		Long: `Shows what is deployed: the contract's version, the engine, the newest migration, and whether generations jump
after a promotion or a restore (timeline_source wal) or not (none).`,
		Example: `  fencectl about
  fencectl about -o json | jq .contract_version`,
		Args: atMost(0),
		RunE: a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.withDatabase(ctx, func(db *database) error {
				var answer procedures.AboutResult
				err := db.read(ctx, func(session client.Session) (err error) {
					answer, err = session.Procedures().About(ctx)
					return err
				})
				if err != nil {
					return err
				}
				if answer.ContractVersion > contractVersion {
					a.note("the database speaks contract %d, this program knows %d: words that it does not know count as refusals; use a newer fencectl",
						answer.ContractVersion, contractVersion)
				}
				return a.printRow(answer)
			})
		}),
	}
}
