package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// defaultTimeout bounds a one-shot command unless --timeout says otherwise.
const defaultTimeout = 30 * time.Second

// app is one run of the program: its streams, its environment, and the flags that every command has.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    map[string]string

	dsn        string
	dsnGiven   func() bool // an empty --dsn is a mistake, not an absence
	dsnFile    string
	configFile string
	output     format
	timeout    durationFlag
	verbose    bool

	// started tells that a command runs: cobra has accepted the command line.
	started bool
}

func environment(env []string) map[string]string {
	variables := make(map[string]string, len(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	return variables
}

func (a *app) addGlobalFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "database as a URL or key=value string; other users of the machine can read it in the process list")
	flags.StringVar(&a.dsnFile, "dsn-file", "", `file that holds the DSN, "-" for standard input`)
	flags.StringVar(&a.configFile, "config", "", `configuration file (default "fencectl.yaml" in the working directory, if there is one)`)
	a.output.register(root, flags)
	a.timeout = durationFlag{allowZero: true}
	flags.Var(&a.timeout, "timeout", "bound for the whole command, 0 for none (default 30s; migrate, uninstall, demo, dev: none)")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "say on standard error what is being done")
	a.dsnGiven = func() bool { return flags.Changed("dsn") }
}

// command is what a command does once its flags are read.
type command func(ctx context.Context, cmd *cobra.Command, args []string) error

// run makes a one-shot command out of f: bounded by --timeout, or by the usual time.
func (a *app) run(f command) func(*cobra.Command, []string) error {
	return a.runWithin(func() time.Duration { return defaultTimeout }, f)
}

// runWithin is run with another bound for when --timeout is not given; 0 is none.
func (a *app) runWithin(usual func() time.Duration, f command) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		limit := usual()
		if a.timeout.given {
			limit = a.timeout.value
		}
		ctx, cancel := cmd.Context(), func() {}
		if limit > 0 {
			ctx, cancel = context.WithTimeoutCause(ctx, limit, timeoutError{limit})
		}
		defer cancel()
		a.stdin = stoppable{ctx: ctx, from: a.stdin}
		err := f(ctx, cmd, args)
		if err != nil {
			err = endedBy(ctx, cmd.Context(), err)
			if usage, ok := err.(*usageError); ok {
				return asUsageError(cmd, usage)
			}
		}
		return err
	}
}

// note writes a line for the person in front of the terminal.
func (a *app) note(text string, args ...any) {
	fmt.Fprintln(a.stderr, "fencectl: "+printable(redact(fmt.Sprintf(text, args...))))
}

// trace is note under --verbose.
func (a *app) trace(text string, args ...any) {
	if a.verbose {
		a.note(text, args...)
	}
}
