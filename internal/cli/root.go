// Package cli is the command line of fencectl: one command a file.
//
// Standard output carries data only (a row is an object, rows are an array); notes, progress and, in table
// mode, errors go to standard error. The exit code says what came of a call: see [ExitCode].
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Groups of commands in the help text.
const (
	groupLease   = "lease"
	groupInspect = "inspect"
	groupOperate = "operate"
	groupDeploy  = "deploy"
	groupTry     = "try"
)

// Main runs one command line and returns its exit code. The end of ctx interrupts the command. env holds
// "NAME=value" strings; the variables of libpq (PGHOST and so on) are read from the process's environment too.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: environment(env)}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return int(ExitDone)
	}
	if !a.started {
		// Cobra refused the command line: an unknown command or flag, a missing argument, a bad value.
		err = asUsageError(cmd, err)
		a.output.guess(args)
	}
	return int(a.report(err))
}

// commands is the list of what fencectl can do, in the order of the help text.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newAcquireCommand(a),
		newRenewCommand(a),
		newPublishCommand(a),
		newReleaseCommand(a),
		newCheckCommand(a),
		newDiagnoseCommand(a),

		newLeasesCommand(a),
		newRejectionsCommand(a),
		newPublicationsCommand(a),
		newAboutCommand(a),
		newVersionCommand(a),

		newSeizeCommand(a),
		newRaiseFloorCommand(a),
		newRemoveCommand(a),
		newPruneCommand(a),

		newMigrateCommand(a),
		newVerifyCommand(a),
		newDoctorCommand(a),
		newUninstallCommand(a),

		newDemoCommand(a),
		newDevCommand(a),
		newDemoWorkerCommand(a),

		newExitCodesTopic(),
		newDatabaseTopic(),
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:     "fencectl",
		Short:   "Leases with fencing tokens, kept by the database that takes the writes",
		Version: buildVersion().Version,
		Long: `fencectl takes leases, publishes results under their fencing token, and shows who was refused and why.

A lease decides when another worker may take over; its generation decides whose write counts. Both are
judged by stored procedures in the database, which "fencectl migrate" installs.`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // asUsageError suggests, in one line
	}
	root.SuggestionsMinimumDistance = 2
	root.AddGroup(
		&cobra.Group{ID: groupLease, Title: "Work under a lease:"},
		&cobra.Group{ID: groupInspect, Title: "Look:"},
		&cobra.Group{ID: groupOperate, Title: "Intervene:"},
		&cobra.Group{ID: groupDeploy, Title: "Deploy:"},
		&cobra.Group{ID: groupTry, Title: "Try:"},
	)
	root.AddCommand(commands(a)...)
	for _, cmd := range root.Commands() {
		if cmd.GroupID == groupLease {
			cmd.Long += fmt.Sprintf("\n\nRESOURCE defaults to $%s; --owner and --generation to $%s and $%s.", envResource, envOwner, envGeneration)
		}
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions // names of resources are no files
		}
	}
	root.SetHelpCommand(newHelpCommand())
	a.addGlobalFlags(root)
	return root
}

// asUsageError turns what cobra says about a command line into one line and the place where help is.
func asUsageError(cmd *cobra.Command, err error) error {
	var usage *usageError
	if errors.As(err, &usage) {
		if usage.hint == "" {
			usage.hint = seeHelp(cmd)
		}
		return usage
	}
	message, _, _ := strings.Cut(err.Error(), "\n")
	if before, _, found := strings.Cut(message, ": strconv."); found {
		message = before + ": it is not a whole number in range"
	}
	hint := seeHelp(cmd)
	if name, ok := strings.CutPrefix(message, `unknown command "`); ok {
		name, _, _ = strings.Cut(name, `"`)
		if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
			hint = fmt.Sprintf("did you mean %q? %s", cmd.CommandPath()+" "+similar[0], hint)
		}
	}
	return &usageError{message: message, hint: hint}
}

func seeHelp(cmd *cobra.Command) string {
	return fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
}
