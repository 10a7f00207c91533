package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fencectl/fencectl/internal/engine"
)

// Down takes migrations back, down to but without DownOptions.To. fence.floor and fence.epoch stay, so that
// numbering goes on where it stood. Routines go with the first migration: they need all tables.
// Without AllowDestructive it fails with kind destructive and says what would be lost.
func (d *Deployer) Down(ctx context.Context, options DownOptions) (DownResult, error) {
	result := DownResult{Migrations: []string{}, Dropped: []string{}}
	all, err := readMigrations(d.engine.Migrations())
	if err != nil {
		return result, err
	}
	if err := options.validate(all); err != nil {
		return result, err
	}
	report := newReporter(options.Progress)
	report.step(PhaseConnect, "")
	err = d.engine.Write(ctx, report.waiting(options.LockTimeout), func(ctx context.Context, w engine.Writer) error {
		report.step(PhasePreflight, "")
		c, err := d.removable(ctx, w, all)
		if err != nil {
			return err
		}
		result.VersionBefore, result.VersionAfter = c.SchemaVersion(), c.SchemaVersion()
		return d.down(ctx, w, c, report, options.To, all, &result)
	})
	return result, err
}

func (o DownOptions) validate(all []migration) error {
	if o.To < 0 {
		return &Error{Kind: engine.KindUsage, Message: fmt.Sprintf("there is no migration %d", o.To)}
	}
	if err := checkTarget(o.To, all); err != nil {
		return err
	}
	if o.LockTimeout < 0 {
		return &Error{Kind: engine.KindUsage, Message: "the lock timeout must not be negative"}
	}
	if o.AllowDestructive {
		return nil
	}
	return &Error{
		Kind:    engine.KindDestructive,
		Message: "taking migrations back drops the routines, and the leases, publications and records in the tables that go: every holder loses its lease, and no publish is fenced any more",
		Hint:    "stop the workers, and add --allow-destructive. Generations go on above the highest one later; roles stay",
	}
}

// removable looks at what is there, and refuses what is not ours to take away.
func (d *Deployer) removable(ctx context.Context, w engine.Writer, all []migration) (*engine.Catalogue, error) {
	c, err := w.Catalogue(ctx, engine.TimelineInstalled)
	if err != nil {
		return nil, err
	}
	if c.Standby {
		return nil, d.engine.CheckServer(c)
	}
	if c.Schema == nil {
		return nil, &Error{Kind: engine.KindNotInstalled, Message: "there is no fence in this database"}
	}
	if err := checkSchema(d.engine.Script(), c); err != nil {
		return nil, err
	}
	if err := checkVersions(d.engine.Script(), c, all); err != nil {
		return nil, err
	}
	if c.Schema.Owner != c.User {
		if err := w.ActAs(ctx, c.Schema.Owner); err != nil {
			return nil, fmt.Errorf("act as the owner of the schema: %w", err)
		}
	}
	return c, nil
}

func (d *Deployer) down(ctx context.Context, w engine.Writer, c *engine.Catalogue, report *reporter, to int64, all []migration, result *DownResult) error {
	var undo []migration
	for _, m := range slices.Backward(all) {
		if _, applied := c.AppliedVersion(m.version); applied && m.version > to {
			undo = append(undo, m)
		}
	}
	if len(undo) == 0 {
		result.Floor = c.Floor
		return nil
	}
	if err := d.dropRoutines(ctx, w, c, report, result); err != nil {
		return err
	}
	provider, err := newProvider(d.engine, w)
	if err != nil {
		return err
	}
	for i, m := range undo {
		report.count(PhaseMigration, m.name, i+1, len(undo))
		if _, err := provider.ApplyVersion(ctx, m.version, false); err != nil {
			return fmt.Errorf("take migration %s back: %w", m.name, err)
		}
		result.Migrations = append(result.Migrations, m.name)
	}
	report.step(PhaseVerify, "")
	c, err = w.Catalogue(ctx, engine.TimelineInstalled)
	if err != nil {
		return err
	}
	result.VersionAfter, result.Floor = c.SchemaVersion(), c.Floor
	return nil
}

// dropRoutines drops all that are ours, in one transaction, and waits first for those who use the tables: what
// cannot be locked in time stops the run before anything is gone.
func (d *Deployer) dropRoutines(ctx context.Context, w engine.Writer, c *engine.Catalogue, report *reporter, result *DownResult) error {
	script := d.engine.Script()
	return w.Transaction(ctx, func(ctx context.Context) error {
		if lock := script.LockTables(tablesToLock(c)); lock != "" {
			if err := w.Exec(ctx, lock); err != nil {
				return fmt.Errorf("wait for those who use the tables: %w", err)
			}
		}
		for _, r := range c.Routines {
			if !c.Managed(r.Name) {
				continue
			}
			report.step(PhaseDrop, r.Identity)
			if err := w.Exec(ctx, script.DropRoutine(r)); err != nil {
				return fmt.Errorf("drop %s: %w", r.Identity, err)
			}
			result.Dropped = append(result.Dropped, r.Identity)
		}
		for name := range c.Ledger {
			if err := w.Exec(ctx, script.ForgetRoutine(name)); err != nil {
				return fmt.Errorf("forget %s: %w", name, err)
			}
		}
		return nil
	})
}

// tablesToLock are those that a number can come from, in the order in which the routines lock them.
func tablesToLock(c *engine.Catalogue) []string {
	var tables []string
	for _, name := range []string{"lease", "lease_term", "floor"} {
		if c.Relation(name) != nil {
			tables = append(tables, name)
		}
	}
	return tables
}

// Uninstall drops the schema fence with all that is in it, and tells the highest generation. It never drops
// a role. It refuses (kind unfit) when the schema holds objects that are not ours, and it never uses CASCADE:
// what others made depend on the fence stops it.
//
// The highest generation is also reported as a step of phase drop before anything is gone, and is in the result
// even when the answer of the commit is lost.
func (d *Deployer) Uninstall(ctx context.Context, options UninstallOptions) (UninstallResult, error) {
	result := UninstallResult{RemainingRoles: []string{}}
	if options.LockTimeout < 0 {
		return result, &Error{Kind: engine.KindUsage, Message: "the lock timeout must not be negative"}
	}
	if !options.AllowDestructive {
		return result, &Error{
			Kind:    engine.KindDestructive,
			Message: "uninstalling drops all leases, publications and records, and forgets which generations were given out",
			Hint:    "stop the workers, and add --allow-destructive; note the highest generation that it prints, since a later installation has to start above it (fencectl migrate --floor)",
		}
	}
	all, err := readMigrations(d.engine.Migrations())
	if err != nil {
		return result, err
	}
	report := newReporter(options.Progress)
	report.step(PhaseConnect, "")
	err = d.engine.Write(ctx, report.waiting(options.LockTimeout), func(ctx context.Context, w engine.Writer) error {
		report.step(PhasePreflight, "")
		c, err := d.removable(ctx, w, all)
		if KindOf(err) == engine.KindNotInstalled {
			return nil
		}
		if err != nil {
			return err
		}
		if foreign := foreignObjects(c, d.engine.Objects()); len(foreign) > 0 {
			return unfit("move them to another schema, or drop them", "the schema fence holds %d objects that are not ours: %s", len(foreign), strings.Join(foreign, ", "))
		}
		result.RemainingRoles = existingRoles(c)
		if len(result.RemainingRoles) > 0 {
			result.DropRolesSQL = d.engine.Script().DropRolesByHand(result.RemainingRoles)
		}
		return d.uninstall(ctx, w, c, report, &result)
	})
	return result, err
}

// uninstall reads the highest number and drops everything in one transaction, while it holds the locks that
// keep anybody from raising it in between.
func (d *Deployer) uninstall(ctx context.Context, w engine.Writer, c *engine.Catalogue, report *reporter, result *UninstallResult) error {
	script := d.engine.Script()
	var highest int64
	result.HighestGeneration = &highest
	err := w.Transaction(ctx, func(ctx context.Context) (err error) {
		if tables := tablesToLock(c); len(tables) > 0 {
			if err := w.Exec(ctx, script.LockTables(tables)); err != nil {
				return fmt.Errorf("wait for those who use the tables: %w", err)
			}
			highest, err = w.Number(ctx, script.HighestGeneration(tables))
			if err != nil {
				return fmt.Errorf("read the highest generation: %w", err)
			}
		}
		report.step(PhaseDrop, fmt.Sprintf("highest generation %d", highest))
		for _, sql := range script.DropAll(c) {
			if err := w.Exec(ctx, sql); err != nil {
				return fmt.Errorf("run %s %w", sql, err)
			}
		}
		return nil
	})
	result.Uninstalled = err == nil
	return err
}
