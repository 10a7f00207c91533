package deploy

import (
	"context"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/fencectl/fencectl/internal/engine"
)

const versionTable = "fence.goose_db_version"

// Migrate installs or upgrades the fence, or with DryRun prints the SQL that would.
//
// Failures are of kind usage, cannot_connect, not_permitted, lock_timeout, unfit, difference, interrupted,
// outcome_unknown or error. After any of them the same call may be made again.
func (d *Deployer) Migrate(ctx context.Context, options MigrateOptions) (MigrateResult, error) {
	all, err := readMigrations(d.engine.Migrations())
	if err != nil {
		return MigrateResult{}, err
	}
	if err := options.validate(all); err != nil {
		return MigrateResult{}, err
	}
	if options.DryRun != nil {
		return d.dryRun(ctx, options, all)
	}
	report := newReporter(options.Progress)
	report.step(PhaseConnect, "")
	var result MigrateResult
	err = d.engine.Write(ctx, report.waiting(options.LockTimeout), func(ctx context.Context, w engine.Writer) error {
		run := &migrateRun{deployer: d, writer: w, report: report, options: options, all: all}
		err := run.run(ctx)
		result = run.result
		return err
	})
	return result, err
}

// migrateRun is one run of migrate, under the lock.
type migrateRun struct {
	deployer *Deployer
	writer   engine.Writer
	report   *reporter
	options  MigrateOptions
	all      []migration
	result   MigrateResult
}

// run does one thing after the other. Every step is a transaction that leaves a state which the plan of the
// next run continues.
func (m *migrateRun) run(ctx context.Context) error {
	m.report.step(PhasePreflight, "")
	c, err := m.writer.Catalogue(ctx, engine.TimelineProbed)
	if err != nil {
		return err
	}
	p, err := preflight(m.deployer.engine, c, m.all, m.options)
	if err != nil {
		return err
	}
	m.result = p.result(false)
	// Roles need the rights of the user who runs this; all else belongs to the schema's owner.
	if err := m.apply(ctx, p.rolesSection()); err != nil {
		return err
	}
	if p.actAs != "" {
		if err := m.writer.ActAs(ctx, p.actAs); err != nil {
			return fmt.Errorf("act as the owner of the schema: %w", err)
		}
	}
	if err := m.apply(ctx, p.schemaSection()); err != nil {
		return err
	}
	if err := m.migrations(ctx, p); err != nil {
		return err
	}
	if err := m.apply(ctx, p.floorSection()); err != nil {
		return err
	}
	if p.changesRoutines() {
		if err := m.apply(ctx, p.routinesSection(m.deployer.engine.Objects(), c)); err != nil {
			return err
		}
	}
	return m.verify(ctx, p)
}

// preflight plans, or says what is in the way. Nothing has been touched yet.
func preflight(e engine.Engine, c *engine.Catalogue, all []migration, options MigrateOptions) (*plan, error) {
	checks := []func() error{
		func() error { return e.CheckServer(c) },
		func() error { return checkSchema(e.Script(), c) },
		func() error { return checkVersions(e.Script(), c, all) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return nil, err
		}
	}
	p := makePlan(e, c, all, options)
	if err := checkRelations(c, p, e.Objects()); err != nil {
		return nil, err
	}
	return p, checkRights(c, p, options.Roles)
}

// apply runs a section as one transaction.
func (m *migrateRun) apply(ctx context.Context, s section) error {
	if len(s.statements) == 0 {
		return nil
	}
	total := 0
	for _, st := range s.statements {
		if st.name != "" {
			total++
		}
	}
	number := 0
	return m.writer.Transaction(ctx, func(ctx context.Context) error {
		for _, st := range s.statements {
			if st.name != "" {
				number++
				m.report.count(s.phase, st.name, number, total)
			}
			if err := m.writer.Exec(ctx, st.sql); err != nil {
				return fmt.Errorf("apply %s %s: %w", s.phase, st.name, err)
			}
		}
		return nil
	})
}

// migrations applies the versioned migrations, by goose, one by one.
func (m *migrateRun) migrations(ctx context.Context, p *plan) error {
	if !p.versionTable && len(p.migrations) == 0 {
		return nil
	}
	provider, err := newProvider(m.deployer.engine, m.writer)
	if err != nil {
		return err
	}
	for i, next := range p.migrations {
		m.report.count(PhaseMigration, next.name, i+1, len(p.migrations))
		if _, err := provider.ApplyVersion(ctx, next.version, true); err != nil {
			return fmt.Errorf("apply migration %s: %w", next.name, err)
		}
	}
	return nil
}

// newProvider makes goose work in the session that holds the lock.
func newProvider(e engine.Engine, w engine.Writer) (*goose.Provider, error) {
	provider, err := goose.NewProvider(e.Dialect(), w.DB(), e.Migrations(),
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return provider, nil
}

// verify looks again: a run that says it is done has seen that it is.
func (m *migrateRun) verify(ctx context.Context, p *plan) error {
	m.report.step(PhaseVerify, "")
	c, err := m.writer.Catalogue(ctx, engine.TimelineInstalled)
	if err != nil {
		return err
	}
	m.result.VersionAfter = c.SchemaVersion()
	m.result.Floor = c.Floor
	m.result.Notes = append(m.result.Notes, grantNotes(c)...)
	if p.after < m.all[len(m.all)-1].version {
		m.result.Notes = append(m.result.Notes, fmt.Sprintf("stopped at migration %d: the routines are applied with migration %d", p.after, m.all[len(m.all)-1].version))
		return nil
	}
	foreign := unknownDifferences(c, m.deployer.engine.Objects())
	for _, f := range foreign {
		m.result.Notes = append(m.result.Notes, f.Object+" is not part of the fence: it stays")
	}
	differences := compare(m.deployer.engine, c, m.all)
	// Objects of others are no reason to call a migration failed.
	if differences = differences[:len(differences)-len(foreign)]; len(differences) > 0 {
		first := differences[0]
		return &Error{
			Kind: engine.KindDifference,
			Message: fmt.Sprintf("migrated, but %d differences remain, the first: %s: expected %s, found %s",
				len(differences), first.Object, first.Expected, first.Found),
			Hint: first.Mend,
		}
	}
	return nil
}

// reporter calls the progress callback.
type reporter struct {
	began    time.Time
	progress func(Step)
}

func newReporter(progress func(Step)) *reporter {
	if progress == nil {
		progress = func(Step) {}
	}
	return &reporter{began: time.Now(), progress: progress}
}

func (r *reporter) step(phase Phase, name string) { r.count(phase, name, 0, 0) }

func (r *reporter) count(phase Phase, name string, number, total int) {
	r.progress(Step{Phase: phase, Name: name, Number: number, Total: total, Elapsed: time.Since(r.began)})
}

// waiting reports who holds the lock.
func (r *reporter) waiting(timeout time.Duration) engine.WriteOptions {
	return engine.WriteOptions{LockTimeout: timeout, Waiting: func(holders []engine.Holder) {
		name := ""
		if len(holders) > 0 {
			name = holders[0].String()
		}
		r.step(PhaseLock, name)
	}}
}
