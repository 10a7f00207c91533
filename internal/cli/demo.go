package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencectl/fencectl/internal/demo"
	"github.com/fencectl/fencectl/internal/entra"
	"github.com/spf13/cobra"
)

// workerCommand is what demo runs again as each of its workers.
const workerCommand = "demo-worker"

// told is an error of a demo that had told a part of its story.
type told struct {
	error
	steps []demo.Step
}

func (e *told) Unwrap() error { return e.error }

func newDemoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "demo",
		GroupID: groupTry,
		Short:   "Watch a stale worker being refused, on a real database",
		Long: `Plays a story with two worker processes on a real PostgreSQL, step by step: a worker is stopped (SIGSTOP) while it
holds a lease, another one takes over, and what the first one publishes when it wakes up is refused as superseded.
Then what happens to a late publish that nobody has superseded, and to a transaction that stalls in the middle.

It starts a throwaway PostgreSQL and removes it. Only --dsn makes it use another database: what the environment or
fencectl.yaml name is ignored. There it works on resources named demo/<random>/... and takes them away at the end;
it installs nothing, so run "fencectl migrate" first. The login needs the roles fence_worker and fence_reader, and
fence_operator or the ownership of the tables to clean up.

Exit code 1 says that a step did not come out as it should, and which.`,
		Example: `  fencectl demo
  fencectl demo -o json | jq '.[] | select(.outcome == "rejected")'
  fencectl demo --dsn postgres://app@localhost/app`,
		Args: atMost(0),
		RunE: a.runWithin(unbounded, func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.demo(ctx)
		}),
	}
}

// newDemoWorkerCommand is for demo's own use. Its argument tells the workers apart in the list of processes.
func newDemoWorkerCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand + " NAME",
		Hidden: true,
		Short:  "Make the calls that standard input asks for",
		Args:   cobra.ExactArgs(1),
		RunE: a.runWithin(unbounded, func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return demo.Serve(ctx, a.stdin, a.stdout, entra.Connector)
		}),
	}
}

func (a *app) demo(ctx context.Context) error {
	dsn, err := a.ownDSN()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	if dsn == "" {
		a.forgetDatabase("demo uses another database than its own only with --dsn")
	}
	story, stop := untilHangup(ctx)
	defer stop()
	steps, err := demo.Run(story, demo.Options{
		DSN:    dsn,
		Worker: []string{program, workerCommand},
		Teller: a.teller(),
		SignIn: entra.Connector,
		Note:   func(text string) { a.note("%s", text) },
	})
	if err != nil {
		return endedByHangup(story, ctx, a.asTold(err, steps))
	}
	switch a.output.value {
	case formatJSON:
		return a.printJSON(steps)
	case formatTable:
		_, err = fmt.Fprintf(a.stdout, "\nAll %d steps came out as told.\n", len(steps))
	}
	return err
}

// ownDSN returns the database that stands on the command line.
func (a *app) ownDSN() (string, error) {
	if a.dsnFile != "" {
		return "", usagef("demo takes its database from --dsn alone, not from --dsn-file")
	}
	if !a.dsnGiven() {
		return "", nil
	}
	dsn, _, err := a.findDSN()
	return dsn, err
}

// asTold adds the steps to an error, for those who have not read them yet.
func (a *app) asTold(err error, steps []demo.Step) error {
	var usage *usageError
	if a.output.value != formatJSON || len(steps) == 0 || errors.As(err, &usage) {
		return err
	}
	return &told{error: err, steps: steps}
}

// teller tells the story as -o wants it.
func (a *app) teller() demo.Teller {
	if a.output.value == formatTable {
		return demo.NewTable(a.stdout)
	}
	return &programTeller{app: a}
}

// programTeller writes a step a line for -o jsonl; for -o json the steps are printed at the end.
type programTeller struct{ app *app }

func (*programTeller) Scene(string, string) error { return nil }

func (t *programTeller) Step(step demo.Step) error {
	if t.app.output.value != formatJSONL {
		return nil
	}
	return t.app.printJSON(step)
}
