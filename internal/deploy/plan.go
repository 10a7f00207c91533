package deploy

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

// migration is one versioned migration of this program.
type migration struct {
	version int64
	name    string
	up      string
}

// upOf cuts the part that goes up out of a goose file. Its statements go to a script as they stand.
func upOf(source string) string {
	_, up, _ := strings.Cut(source, "-- +goose Up\n")
	up, _, _ = strings.Cut(up, "-- +goose Down\n")
	return strings.TrimSpace(up)
}

// readMigrations returns the migrations in the order of their versions.
func readMigrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		source, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version: version, name: name, up: upOf(string(source))})
	}
	slices.SortFunc(all, func(a, b migration) int { return int(a.version - b.version) })
	return all, nil
}

// plan is what a run of migrate has to do, found out by one look at the catalogue. Run and dry run follow the
// same plan.
type plan struct {
	script engine.Script
	before int64
	after  int64

	roles        []string // to create
	createSchema bool
	markSchema   bool
	actAs        string // role that owns the schema, where that is another than the session's
	versionTable bool   // goose's table is to be created
	migrations   []migration
	floor        *int64
	drops        []engine.Routine
	routines     []engine.File
	forget       []string // ledger rows of routines that are no longer ours
	grants       bool
	keptGrants   []engine.Grant // to other roles, on routines that are dropped and created
}

func (p *plan) empty() bool {
	return len(p.roles) == 0 && !p.createSchema && !p.markSchema && !p.versionTable && len(p.migrations) == 0 &&
		p.floor == nil && !p.changesRoutines()
}

func (p *plan) changesRoutines() bool {
	return len(p.drops) > 0 || len(p.routines) > 0 || len(p.forget) > 0 || p.grants
}

// makePlan compares the catalogue with what should be there.
func makePlan(e engine.Engine, c *engine.Catalogue, all []migration, options MigrateOptions) *plan {
	p := &plan{script: e.Script(), before: c.SchemaVersion()}
	newest := all[len(all)-1].version
	target := options.To
	if target == 0 {
		target = newest
	}
	for _, role := range procs.Roles() {
		if _, exists := c.Roles[role.Name]; !exists {
			p.roles = append(p.roles, role.Name)
		}
	}
	p.createSchema = c.Schema == nil
	p.markSchema = c.Schema != nil && !c.Schema.Ours
	if c.Schema != nil && c.Schema.Owner != c.User {
		p.actAs = c.Schema.Owner
	}
	p.versionTable = !c.VersionTable
	p.after = p.before
	for _, m := range all {
		if _, applied := c.AppliedVersion(m.version); !applied && m.version <= target {
			p.migrations = append(p.migrations, m)
			p.after = max(p.after, m.version)
		}
	}
	if options.Floor != nil && (c.Floor == nil || *c.Floor < *options.Floor) {
		p.floor = options.Floor
	}
	// The routines need the tables of the newest version.
	if p.after == newest {
		p.planRoutines(c)
		p.planGrants(c)
	}
	return p
}

// planRoutines finds the routines to apply: those whose file has changed, and those that somebody changed by
// hand. Other overloads of our names, and our routines that are no longer in the files, go.
func (p *plan) planRoutines(c *engine.Catalogue) {
	for _, r := range c.Routines {
		wanted := slices.IndexFunc(c.Files, func(f engine.File) bool { return f.Identity == r.Identity })
		switch {
		case wanted >= 0 && p.mustDrop(c, r, c.Files[wanted]):
			p.drops = append(p.drops, r)
			p.keepGrants(c, r)
		case wanted < 0 && c.Managed(r.Name):
			p.drops = append(p.drops, r)
		}
	}
	for _, f := range c.Files {
		if mustApply(c, f) {
			p.routines = append(p.routines, f)
		}
	}
	for name := range c.Ledger {
		if !slices.ContainsFunc(c.Files, func(f engine.File) bool { return f.Name == name }) {
			p.forget = append(p.forget, name)
		}
	}
	slices.Sort(p.forget)
}

// mustDrop tells whether a routine that is to be applied cannot be replaced where it stands.
func (p *plan) mustDrop(c *engine.Catalogue, found engine.Routine, wanted engine.File) bool {
	return mustApply(c, wanted) && !p.script.CanReplace(wanted, found)
}

// mustApply tells whether a routine is missing, older or newer than its file, or changed by hand.
func mustApply(c *engine.Catalogue, f engine.File) bool {
	row, found := c.Ledger[f.Name], c.Routine(f.Identity)
	return found == nil || row.FileHash != f.Hash || row.File != f.File || row.DefinitionHash != found.DefinitionHash ||
		!slices.Equal(found.Settings, f.Settings)
}

// keepGrants remembers what was granted to others than our roles: that is theirs to decide, and DROP loses it.
func (p *plan) keepGrants(c *engine.Catalogue, dropped engine.Routine) {
	for _, g := range c.Grants {
		if g.Object == dropped.Identity && !managedGrantee(g.Grantee) {
			p.keptGrants = append(p.keptGrants, g)
		}
	}
}

// planGrants sets all grants anew when one differs, or when a routine is new: CREATE grants EXECUTE to PUBLIC.
func (p *plan) planGrants(c *engine.Catalogue) {
	missing, unexpected := compareGrants(p.script, c)
	p.grants = len(missing) > 0 || len(unexpected) > 0 || len(p.routines) > 0
}

// grantees are those whose grants are ours to decide.
func grantees() []string {
	names := []string{"PUBLIC"}
	for _, role := range procs.Roles() {
		names = append(names, role.Name)
	}
	return names
}

func managedGrantee(name string) bool { return slices.Contains(grantees(), name) }

// expectedGrants is the matrix of procs.Roles, for the routines of the files.
func expectedGrants(script engine.Script, files []engine.File) []engine.Grant {
	var grants []engine.Grant
	for _, role := range procs.Roles() {
		if g, needed := script.SchemaGrant(role.Name); needed {
			grants = append(grants, g)
		}
		for _, f := range files {
			if slices.Contains(role.Routines, f.Name) {
				grants = append(grants, engine.Grant{Kind: f.Kind, Object: f.Identity, Grantee: role.Name, Privilege: "EXECUTE"})
			}
		}
		for _, view := range role.Views {
			grants = append(grants, engine.Grant{Kind: "TABLE", Object: "fence." + view, Grantee: role.Name, Privilege: "SELECT"})
		}
	}
	return grants
}

// compareGrants returns the grants of our roles and PUBLIC that are missing, and those that are too many, on
// our objects.
func compareGrants(script engine.Script, c *engine.Catalogue) (missing, unexpected []engine.Grant) {
	expected := expectedGrants(script, c.Files)
	for _, g := range expected {
		if !slices.Contains(c.Grants, g) {
			missing = append(missing, g)
		}
	}
	for _, g := range c.Grants {
		if managedGrantee(g.Grantee) && !slices.Contains(expected, g) && !foreignObject(c, g) {
			unexpected = append(unexpected, g)
		}
	}
	return missing, unexpected
}

// foreignObject tells whether a grant is on a routine that is not ours, or about to go.
func foreignObject(c *engine.Catalogue, g engine.Grant) bool {
	r := c.Routine(g.Object)
	return r != nil && !slices.ContainsFunc(c.Files, func(f engine.File) bool { return f.Identity == r.Identity })
}

// section is a part of a run: its statements are one transaction.
type section struct {
	phase Phase
	title string
	// statements as they go to the server, each a batch of its own.
	statements []statement
}

type statement struct {
	// name of what it works on, for progress; empty where that is not worth a line.
	name string
	sql  string
}

func (p *plan) rolesSection() section {
	s := section{phase: PhaseRoles, title: "Roles. They belong to the whole server and have no login of their own."}
	for _, role := range p.roles {
		s.statements = append(s.statements, statement{role, p.script.CreateRole(role)})
	}
	return s
}

func (p *plan) schemaSection() section {
	s := section{phase: PhaseSchema, title: "The schema, and the mark by which fencectl knows it, in one transaction."}
	if p.createSchema {
		s.statements = append(s.statements, statement{"fence", p.script.CreateSchema()})
	} else if p.markSchema {
		s.statements = append(s.statements, statement{"fence", p.script.MarkSchema()})
	}
	return s
}

func (p *plan) floorSection() section {
	s := section{phase: PhaseFloor, title: "The floor: generations start above it."}
	if p.floor == nil {
		return s
	}
	s.statements = append(s.statements, statement{"fence.floor", p.script.RaiseFloor(*p.floor)})
	if history := p.script.RecordHistory(true); history != "" {
		s.statements = append(s.statements, statement{"", history})
	}
	return s
}

// routinesSection is one transaction for all: nobody ever sees half of a new version, or a routine that
// everybody may execute.
func (p *plan) routinesSection(objects []engine.Relation, c *engine.Catalogue) section {
	s := section{phase: PhaseRoutines, title: "Routines, grants and ledger, in one transaction."}
	for _, r := range p.drops {
		s.statements = append(s.statements, statement{r.Identity, p.script.DropRoutine(r)})
	}
	for _, f := range p.routines {
		s.statements = append(s.statements, statement{f.Name, p.script.ApplyRoutine(f, p.staying(c, f))}, statement{"", p.script.RecordRoutine(f)})
	}
	for _, name := range p.forget {
		s.statements = append(s.statements, statement{"", p.script.ForgetRoutine(name)})
	}
	if history := p.script.RecordHistory(false); history != "" {
		s.statements = append(s.statements, statement{"", history})
	}
	if !p.grants {
		return s
	}
	_, unexpected := compareGrants(p.script, c)
	// One batch: what is revoked here is granted again here.
	batch := p.script.SetGrants(engine.GrantChange{
		Objects: grantObjects(objects, c.Files), Grantees: grantees(),
		Unexpected: slices.DeleteFunc(unexpected, p.goes), Expected: append(expectedGrants(p.script, c.Files), p.keptGrants...),
	})
	s.statements = append(s.statements, statement{"grants", strings.Join(batch, "\n")})
	return s
}

// staying is the routine of a file that is there, and is not dropped before.
func (p *plan) staying(c *engine.Catalogue, f engine.File) *engine.Routine {
	if slices.ContainsFunc(p.drops, func(r engine.Routine) bool { return r.Identity == f.Identity }) {
		return nil
	}
	return c.Routine(f.Identity)
}

// goes tells whether a grant goes with its routine.
func (p *plan) goes(g engine.Grant) bool {
	return slices.ContainsFunc(p.drops, func(r engine.Routine) bool { return r.Identity == g.Object })
}

// grantObjects lists all that is ours, as Script.Revoke takes it.
func grantObjects(relations []engine.Relation, files []engine.File) []string {
	objects := []string{"SCHEMA fence"}
	for _, r := range relations {
		kind := "TABLE"
		if r.Kind == "sequence" {
			kind = "SEQUENCE"
		}
		objects = append(objects, kind+" fence."+r.Name)
	}
	for _, f := range files {
		objects = append(objects, f.Kind+" "+f.Identity)
	}
	return objects
}

// result says what the plan does.
func (p *plan) result(dryRun bool) MigrateResult {
	r := MigrateResult{
		DryRun: dryRun, Changed: !p.empty(), VersionBefore: p.before, VersionAfter: p.after,
		Migrations: []string{}, Roles: append([]string{}, p.roles...), Routines: []string{}, Dropped: []string{},
		Grants: p.grants, Notes: []string{},
	}
	for _, m := range p.migrations {
		r.Migrations = append(r.Migrations, m.name)
	}
	for _, f := range p.routines {
		r.Routines = append(r.Routines, f.Name)
	}
	for _, d := range p.drops {
		r.Dropped = append(r.Dropped, d.Identity)
	}
	return r
}
