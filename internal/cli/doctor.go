package cli

import (
	"context"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/spf13/cobra"
)

// findingRow is a finding with a hint in every row, so that tables have the same columns.
type findingRow struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

type doctorSummary struct {
	Status string `json:"status"`
}

func newDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		GroupID: groupDeploy,
		Short:   "Find out whether this database is fit to carry fences",
		Long: `Looks at what the promises of the fence rest on: version, durability settings, standbys and their mode, poolers,
clocks, long transactions, time-outs. It writes nothing, and works before the fence is installed. What this user may
not see is "unknown", never "ok". Exit code 3 means unfit; warnings and unknowns leave 0.`,
		Example: `  fencectl doctor
  fencectl doctor -o json | jq -r '.findings[] | select(.status != "ok")'`,
		Args: atMost(0),
		RunE: a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return reportOf(ctx, a, (*deploy.Deployer).Doctor, a.showFindings)
		}),
	}
}

func (a *app) showFindings(d deploy.DoctorResult) error {
	err := a.printReport(d, doctorSummary{string(d.Status)}, func() error {
		rows := make([]findingRow, len(d.Findings))
		for i, f := range d.Findings {
			rows[i] = findingRow{f.Check, string(f.Status), f.Detail, f.Hint}
		}
		return printRows(a, rows)
	})
	if err != nil {
		return err
	}
	if d.Status == deploy.FindingUnfit {
		return finding{"unfit"}
	}
	return nil
}
