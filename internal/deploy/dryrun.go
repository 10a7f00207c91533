package deploy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pressly/goose/v3/database"

	"github.com/fencectl/fencectl/internal/engine"
)

// dryRun writes the script of all that is pending. What it needs to know it reads; it changes nothing.
func (d *Deployer) dryRun(ctx context.Context, options MigrateOptions, all []migration) (MigrateResult, error) {
	var result MigrateResult
	err := d.engine.Read(ctx, func(ctx context.Context, r engine.Reader) error {
		c, err := r.Catalogue(ctx, engine.TimelineProbed)
		if err != nil {
			return err
		}
		p, err := planForScript(d.engine, c, all, options)
		if err != nil {
			return err
		}
		result = p.result(true)
		for _, g := range p.keptGrants {
			result.Notes = append(result.Notes, fmt.Sprintf("%s on %s is granted to %q, and again after the routine was dropped and created", g.Privilege, g.Object, g.Grantee))
		}
		return d.writeScript(options.DryRun, c, p)
	})
	return result, err
}

// planForScript plans like a run, for somebody else who runs the script: only what that person could not mend
// stops it.
func planForScript(e engine.Engine, c *engine.Catalogue, all []migration, options MigrateOptions) (*plan, error) {
	if err := e.CheckServer(c); err != nil {
		return nil, err
	}
	if err := checkSchema(e.Script(), c); err != nil && KindOf(err) != engine.KindNotPermitted {
		return nil, err
	}
	if err := checkVersions(e.Script(), c, all); err != nil {
		return nil, err
	}
	p := makePlan(e, c, all, options)
	if err := checkRelations(c, p, e.Objects()); err != nil {
		return nil, err
	}
	if options.Roles == RolesExisting {
		return p, checkRights(c, p, options.Roles)
	}
	return p, nil
}

// scriptWriter remembers the first error, so that each line need not be checked.
type scriptWriter struct {
	to     io.Writer
	script engine.Script
	err    error
}

func (w *scriptWriter) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.to, format+"\n", args...)
	}
}

func (w *scriptWriter) raw(text string) {
	w.line("%s", strings.TrimRight(text, "\n"))
}

// transaction writes a section as a transaction of its own, as a run does.
func (w *scriptWriter) transaction(s section) {
	if len(s.statements) == 0 {
		return
	}
	w.line("\n-- %s", s.title)
	w.raw(w.script.Begin())
	for _, st := range s.statements {
		w.line("")
		w.raw(w.script.Batch(strings.TrimRight(st.sql, "\n")))
	}
	w.line("")
	w.raw(w.script.Commit())
}

func (d *Deployer) writeScript(to io.Writer, c *engine.Catalogue, p *plan) error {
	w := &scriptWriter{to: to, script: p.script}
	if p.empty() {
		w.line("-- Nothing to do: database %q is at migration %d, and its routines and grants are as they should be.", c.Database, p.before)
		return w.err
	}
	w.line("-- Migrates database %q from migration %d to %d, as fencectl migrate does. Run it with", c.Database, p.before, p.after)
	w.line("--     %s", p.script.Runner())
	w.line("-- and then check the result with: fencectl verify. After an error let fencectl write the script anew: each")
	w.line("-- transaction that was committed stays.")
	w.line("")
	w.raw(p.script.Prologue(c.Database, p.before))
	w.transaction(p.rolesSection())
	if act := p.script.ActAs(p.actAs); p.actAs != "" && act != "" {
		w.line("\n-- The owner of the schema owns what is in it.")
		w.raw(act)
	}
	w.transaction(p.schemaSection())
	if err := d.writeMigrations(w, p); err != nil {
		return err
	}
	w.transaction(p.floorSection())
	if p.changesRoutines() {
		w.transaction(p.routinesSection(d.engine.Objects(), c))
	}
	w.line("")
	w.raw(p.script.Epilogue())
	return w.err
}

func (d *Deployer) writeMigrations(w *scriptWriter, p *plan) error {
	if p.versionTable {
		create, err := versionTableSQL(d.engine)
		if err != nil {
			return err
		}
		w.transaction(section{title: "The table in which goose keeps the versions.", statements: []statement{
			{sql: create + ";"}, {sql: p.script.RecordMigration(0)},
		}})
	}
	for _, m := range p.migrations {
		s := section{title: "Migration " + m.name}
		for _, sql := range append(p.script.Statements(m.up), p.script.RecordMigration(m.version)) {
			s.statements = append(s.statements, statement{sql: sql})
		}
		w.transaction(s)
	}
	return nil
}

// versionTableSQL asks goose for its statement instead of repeating it.
func versionTableSQL(e engine.Engine) (string, error) {
	store, err := database.NewStore(e.Dialect(), versionTable)
	if err != nil {
		return "", fmt.Errorf("open goose's store: %w", err)
	}
	recorder := &recorder{}
	if err := store.CreateVersionTable(context.Background(), recorder); err != nil && !errors.Is(err, errRecorded) {
		return "", fmt.Errorf("ask goose for its version table: %w", err)
	}
	return recorder.statement, nil
}

// recorder takes the place of a connection, and keeps the statement.
type recorder struct{ statement string }

var errRecorded = errors.New("recorded, not run")

func (r *recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.statement = query
	return nil, errRecorded
}

func (r *recorder) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errRecorded
}

// QueryRowContext is not used to create the table.
func (r *recorder) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }
