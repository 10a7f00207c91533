package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ExitCode is what a command leaves behind for scripts.
type ExitCode int

// Exit codes: part of the interface, never renumbered.
const (
	ExitDone           ExitCode = 0
	ExitError          ExitCode = 1
	ExitUsage          ExitCode = 2
	ExitUnfit          ExitCode = 3
	ExitLockTimeout    ExitCode = 4
	ExitCannotConnect  ExitCode = 5
	ExitOutcomeUnknown ExitCode = 6
	ExitRefused        ExitCode = 10
	ExitInterrupted    ExitCode = 130
)

type exitCodeRow struct {
	code    ExitCode
	meaning string
}

func exitCodes() []exitCodeRow {
	return []exitCodeRow{
		{ExitDone, "done"},
		{ExitError, "error"},
		{ExitUsage, "usage: the command line, the configuration or an argument is wrong"},
		{ExitUnfit, "difference found, or the database is unfit (not migrated, drift, a failed check)"},
		{ExitLockTimeout, "lock time-out: another transaction held what is needed for too long"},
		{ExitCannotConnect, "cannot connect, or not permitted"},
		{ExitOutcomeUnknown, "outcome unknown: the call was sent and its answer was lost; make the same call again"},
		{ExitRefused, "refused by the fence (held, refused, rejected): outcome and reason are on standard output"},
		{ExitInterrupted, "interrupted"},
	}
}

func newExitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes of every command:\n\n")
	for _, row := range exitCodes() {
		fmt.Fprintf(&text, "  %3d  %s\n", row.code, row.meaning)
	}
	text.WriteString(`
With -o json and -o jsonl a failure (1 to 6, 130) prints {"error": {"kind", "message", "sqlstate", "retryable",
"outcome_unknown", "hint"}} on standard output, and so does a usage error. A refusal (10) prints the row that the
database answered with. A command that may be repeated after code 6 is told the id to repeat it with:
request_id for acquire, operation_key for publish; the others are safe to repeat as they stand, but for
uninstall: repeated, it no longer knows the highest generation, which it prints before it drops anything.`)
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: text.String()}
}
