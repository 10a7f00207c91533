package cli

import (
	"context"
	"errors"
	"time"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/entra"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// unbounded is the usual bound of commands that must not be cut short in the middle.
func unbounded() time.Duration { return 0 }

// withDeployer runs f on the database that the command line, the environment or the configuration names.
func (a *app) withDeployer(f func(*deploy.Deployer) error) error {
	dsn, _, err := a.findDatabase()
	if err != nil {
		return err
	}
	opened, err := engine.Open(dsn, engine.Options{SignIn: entra.Connector})
	if err != nil {
		return err
	}
	return f(deploy.New(opened))
}

// reportOf runs a reading command of deploy.
func reportOf[T any](ctx context.Context, a *app, read func(*deploy.Deployer, context.Context) (T, error), show func(T) error) error {
	return a.withDeployer(func(d *deploy.Deployer) error {
		result, err := read(d, ctx)
		if err != nil {
			return err
		}
		return show(result)
	})
}

// addLockTimeout adds the flag that bounds the wait for the migration lock. 0 is one attempt.
func addLockTimeout(cmd *cobra.Command) *durationFlag {
	wait := &durationFlag{value: deploy.DefaultLockTimeout, allowZero: true}
	cmd.Flags().Var(wait, "lock-timeout", "how long to wait for another run and for each table, 0 for one attempt")
	return wait
}

// progress tells a person what a long command is about to do; each routine only under --verbose.
func (a *app) progress(step deploy.Step) {
	say := a.trace
	if step.Phase == deploy.PhaseMigration || step.Phase == deploy.PhaseLock && step.Name != "" {
		say = a.note
	}
	switch {
	case step.Total > 0:
		say("%s %d of %d: %s", step.Phase, step.Number, step.Total, step.Name)
	case step.Name != "":
		say("%s: %s", step.Phase, step.Name)
	default:
		say("%s", step.Phase)
	}
}

// notes shows what deploy wants a person to know; programs find it in the result.
func (a *app) notes(notes []string) {
	if !a.output.isJSON() {
		for _, text := range notes {
			a.noteLines("", text)
		}
	}
}

// explainDeployment explains an error of migrate and its kin.
func explainDeployment(e *deploy.Error) failure {
	f := failure{Kind: string(e.Kind), Message: oneLine(e), Hint: e.Hint}
	var server *pgconn.PgError
	if errors.As(e, &server) {
		f.SQLState = &server.Code
	}
	for _, holder := range e.Holders {
		f.Message += "; held by " + holder.String()
	}
	f.exit, f.Retryable, f.OutcomeUnknown = deploymentExit(e.Kind)
	if f.Hint == "" {
		f.Hint = "mend what the message names, and run the command again"
	}
	return f
}

// deploymentExit gives the exit code of a failed migrate, uninstall, verify or doctor, whether the same command
// may succeed when it is simply run again, and whether it is unknown what it did.
func deploymentExit(kind deploy.Kind) (exit ExitCode, retryable, unknown bool) {
	switch kind {
	case engine.KindUsage, engine.KindDestructive:
		return ExitUsage, false, false
	case engine.KindUnfit, engine.KindDifference, engine.KindNotInstalled:
		return ExitUnfit, false, false
	case engine.KindLockTimeout:
		return ExitLockTimeout, true, false
	case engine.KindCannotConnect:
		return ExitCannotConnect, true, false
	case engine.KindNotPermitted:
		return ExitCannotConnect, false, false
	case engine.KindOutcomeUnknown:
		return ExitOutcomeUnknown, true, true
	case engine.KindInterrupted:
		return ExitInterrupted, true, false
	}
	return ExitError, false, false
}
