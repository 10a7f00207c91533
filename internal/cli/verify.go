package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/spf13/cobra"
)

// verifySummary is the verdict without the list.
type verifySummary struct {
	Installed bool `json:"installed"`
	Clean     bool `json:"clean"`
}

func newVerifyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "verify",
		GroupID: groupDeploy,
		Short:   "Compare the database with what this program would install",
		Long: `Compares procedures, grants and settings with what this program would install. It writes nothing. Exit code 3
means that something differs; the list says what, and how to mend it.`,
		Example: `  fencectl verify
  fencectl verify -o json | jq -r '.differences[] | "\(.object): \(.mend)"'`,
		Args: atMost(0),
		RunE: a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return reportOf(ctx, a, (*deploy.Deployer).Verify, a.showDifferences)
		}),
	}
}

func (a *app) showDifferences(v deploy.VerifyResult) error {
	a.notes(v.Notes)
	summary := verifySummary{v.Installed, v.Clean}
	if v.Clean && !a.output.isJSON() {
		return a.printRow(summary)
	}
	if err := a.printReport(v, summary, func() error { return printRows(a, v.Differences) }); err != nil {
		return err
	}
	if !v.Clean {
		return finding{"difference"}
	}
	return nil
}
