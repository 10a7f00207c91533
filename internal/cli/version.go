package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// contractVersion is the newest contract of the procedures that this program knows.
const contractVersion = 1

type versionAnswer struct {
	Version         string  `json:"version"`
	Commit          *string `json:"commit"`
	CommittedAt     *string `json:"committed_at"`
	Modified        bool    `json:"modified"`
	GoVersion       string  `json:"go_version"`
	Platform        string  `json:"platform"`
	ContractVersion int     `json:"contract_version"`
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: groupInspect,
		Short:   "Show this program's version and the contract that it knows",
		Long:    `Shows what this program was built from, and the newest contract that it knows. It needs no database.`,
		Example: `  fencectl version
  fencectl version -o json`,
		Args: atMost(0),
		RunE: a.run(func(context.Context, *cobra.Command, []string) error {
			return a.printRow(buildVersion())
		}),
	}
}

func buildVersion() versionAnswer {
	answer := versionAnswer{
		Version:         "unknown",
		GoVersion:       runtime.Version(),
		Platform:        runtime.GOOS + "/" + runtime.GOARCH,
		ContractVersion: contractVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return answer
	}
	answer.Version = info.Main.Version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			answer.Commit = &setting.Value
		case "vcs.time":
			answer.CommittedAt = &setting.Value
		case "vcs.modified":
			answer.Modified = setting.Value == "true"
		}
	}
	return answer
}
