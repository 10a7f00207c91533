package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/spf13/cobra"
)

type migrateFlags struct {
	to          int64
	floor       int64
	dryRun      bool
	roles       enumFlag
	lockTimeout *durationFlag
}

func (f *migrateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.to, "to", 0, "stop after this migration (default: the newest)")
	flags.Int64Var(&f.floor, "floor", 0, "let generations start above this, as uninstall printed it")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the SQL of all that is pending instead of running it")
	addEnum(cmd, &f.roles, "roles", string(deploy.RolesCreate),
		"create missing database roles, or expect them to exist", string(deploy.RolesCreate), string(deploy.RolesExisting))
	f.lockTimeout = addLockTimeout(cmd)
}

// migrateAnswer is what a run did. With --dry-run, SQL is what it would send.
type migrateAnswer struct {
	deploy.MigrateResult
	SQL string `json:"sql,omitempty" table:"-"`
}

func newMigrateCommand(a *app) *cobra.Command {
	long := `Installs the fence in the database, or brings it up to this program's version: roles, tables, views, procedures
and grants. It may be run again at any time, by several deployers at once, and after a run that was killed: one
lock serialises all of it, and the next run completes what is missing.

It works as the owner of the database, without superuser rights. --roles existing is for those who may not create
roles. --dry-run prints a script for psql; run by hand and followed by "fencectl verify", it installs as well.`
	cmd := a.newMigrateUp("migrate", "Install the fence, or bring it up to date", long, `  fencectl migrate --dry-run
  fencectl migrate
  fencectl migrate --roles existing --lock-timeout 5m
  fencectl migrate status`)
	cmd.GroupID = groupDeploy
	cmd.AddCommand(
		a.newMigrateUp("up", `The same as "fencectl migrate"`, long, "  fencectl migrate up\n  fencectl migrate up --dry-run"),
		newMigrateStatusCommand(a),
		newMigrateDownCommand(a),
	)
	return cmd
}

func (a *app) newMigrateUp(use, short, long, example string) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: atMost(0)}
	f.register(cmd)
	cmd.RunE = a.runWithin(unbounded, func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		return a.migrate(ctx, cmd, f)
	})
	return cmd
}

func (a *app) migrate(ctx context.Context, cmd *cobra.Command, f migrateFlags) error {
	options := deploy.MigrateOptions{
		To:          f.to,
		Roles:       deploy.Roles(f.roles.value),
		LockTimeout: f.lockTimeout.value,
		Floor:       optional(cmd, "floor", f.floor),
		Progress:    a.progress,
	}
	var script strings.Builder
	if f.dryRun {
		options.DryRun = &script
	}
	return a.withDeployer(func(d *deploy.Deployer) error {
		result, err := d.Migrate(ctx, options)
		if err != nil {
			return err
		}
		a.notes(result.Notes)
		if f.dryRun && !a.output.isJSON() {
			return a.printText(script.String())
		}
		return a.printRow(migrateAnswer{result, script.String()})
	})
}

// migrateSummary is the part of the status that fits into a few lines.
type migrateSummary struct {
	Engine        string `json:"engine"`
	EngineVersion string `json:"engine_version"`
	Database      string `json:"database"`
	Installed     bool   `json:"installed"`
	UpToDate      bool   `json:"up_to_date"`
	Version       int64  `json:"version"`
	Newest        int64  `json:"newest"`
}

// deployedRow is a migration, a routine or a role.
type deployedRow struct {
	Kind      string     `json:"kind"`
	Name      string     `json:"name"`
	State     string     `json:"state"`
	AppliedAt *time.Time `json:"applied_at"`
}

func newMigrateStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what is installed and what is pending",
		Long: `Shows which migrations, procedures and roles are installed. It writes nothing and needs no more than one of our
roles. Exit code 3 means that "fencectl migrate" would change something.`,
		Example: `  fencectl migrate status
  fencectl migrate status >/dev/null || fencectl migrate`,
		Args: atMost(0),
		RunE: a.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return reportOf(ctx, a, (*deploy.Deployer).Status, a.showStatus)
		}),
	}
}

func (a *app) showStatus(s deploy.StatusResult) error {
	a.notes(s.Notes)
	err := a.printReport(s, migrateSummary{
		s.Engine, s.EngineVersion, s.Database, s.Installed, s.UpToDate, s.Version, s.Newest,
	}, func() error { return printRows(a, deployedRows(s)) })
	if err != nil {
		return err
	}
	if !s.UpToDate {
		a.advise(`something is pending: run "fencectl migrate"`)
		return finding{"pending"}
	}
	return nil
}

func deployedRows(s deploy.StatusResult) []deployedRow {
	var rows []deployedRow
	for _, m := range s.Migrations {
		name := m.Name
		if name == "" {
			name = fmt.Sprint(m.Version)
		}
		rows = append(rows, deployedRow{"migration", name, string(m.State), m.AppliedAt})
	}
	for _, r := range s.Routines {
		rows = append(rows, deployedRow{"routine", r.Name, string(r.State), r.AppliedAt})
	}
	for _, r := range s.Roles {
		state := "missing"
		if r.Exists {
			state = "exists"
		}
		rows = append(rows, deployedRow{"role", r.Name, state, nil})
	}
	return rows
}

func newMigrateDownCommand(a *app) *cobra.Command {
	options := deploy.DownOptions{Progress: a.progress}
	cmd := &cobra.Command{
		Use:   "down --to N",
		Short: "Take migrations back, with the leases in them",
		Long: `Takes back the migrations after --to, and with them the procedures; 0 takes back all of them. Leases, results and
records that stand in their tables are lost, which --allow-destructive has to permit. What keeps generations from
repeating stays, so that a later "fencectl migrate" goes on above the numbers that were given out.`,
		Example: `  fencectl migrate down --to 3 --allow-destructive`,
		Args:    atMost(0),
	}
	cmd.Flags().Int64Var(&options.To, "to", 0, "the migration that remains the newest (required)")
	cmd.Flags().BoolVar(&options.AllowDestructive, "allow-destructive", false, "permit that leases and records are lost")
	wait := addLockTimeout(cmd)
	// It fails only for a flag that is not there.
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err)
	}
	cmd.RunE = a.runWithin(unbounded, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		options.LockTimeout = wait.value
		return a.withDeployer(func(d *deploy.Deployer) error {
			result, err := d.Down(ctx, options)
			if err != nil {
				return err
			}
			return a.printRow(result)
		})
	})
	return cmd
}
