package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

// Status says which migrations and routines are installed. It writes nothing.
func (d *Deployer) Status(ctx context.Context) (StatusResult, error) {
	all, err := readMigrations(d.engine.Migrations())
	if err != nil {
		return StatusResult{}, err
	}
	var result StatusResult
	err = d.engine.Read(ctx, func(ctx context.Context, r engine.Reader) error {
		c, err := r.Catalogue(ctx, engine.TimelineInstalled)
		if err != nil {
			return err
		}
		if c.Schema != nil && c.Schema.Ours {
			if err := checkReadable(d.engine.Script(), c); err != nil {
				return err
			}
		}
		result = d.status(c, all)
		return nil
	})
	return result, err
}

func (d *Deployer) status(c *engine.Catalogue, all []migration) StatusResult {
	s := StatusResult{
		Engine: d.engine.Name(), EngineVersion: c.Version, Database: c.Database,
		Installed: c.Installed(), Version: c.SchemaVersion(), Newest: all[len(all)-1].version,
		Migrations: migrationStates(c, all), Routines: routineStates(c), Notes: []string{},
	}
	for _, role := range procs.Roles() {
		_, exists := c.Roles[role.Name]
		s.Roles = append(s.Roles, RoleStatus{Name: role.Name, Purpose: role.Purpose, Exists: exists})
	}
	if c.Schema != nil && !c.Schema.Ours {
		s.Notes = append(s.Notes, "there is a schema named fence that is not fencectl's")
	}
	s.UpToDate = s.Installed &&
		!slices.ContainsFunc(s.Migrations, func(m MigrationStatus) bool { return m.State != StateCurrent }) &&
		!slices.ContainsFunc(s.Routines, func(r RoutineStatus) bool { return r.State != StateCurrent }) &&
		!slices.ContainsFunc(s.Roles, func(r RoleStatus) bool { return !r.Exists })
	return s
}

func migrationStates(c *engine.Catalogue, all []migration) []MigrationStatus {
	states := []MigrationStatus{}
	for _, m := range all {
		state := MigrationStatus{Version: m.version, Name: m.name, State: StatePending}
		if applied, ok := c.AppliedVersion(m.version); ok {
			state.State, state.AppliedAt = StateCurrent, &applied.At
		}
		states = append(states, state)
	}
	for _, applied := range c.Applied {
		if !slices.ContainsFunc(all, func(m migration) bool { return m.version == applied.Version }) {
			states = append(states, MigrationStatus{Version: applied.Version, State: StateUnknown, AppliedAt: &applied.At})
		}
	}
	return states
}

func routineStates(c *engine.Catalogue) []RoutineStatus {
	states := []RoutineStatus{}
	for _, f := range c.Files {
		state := RoutineStatus{Name: f.Name, File: f.File, State: StateCurrent}
		row, known := c.Ledger[f.Name]
		if known {
			state.AppliedAt, state.AppliedBy = &row.AppliedAt, row.AppliedBy
		}
		switch found := c.Routine(f.Identity); {
		case !known, row.FileHash != f.Hash, row.File != f.File:
			state.State = StatePending
		case found == nil, found.DefinitionHash != row.DefinitionHash:
			state.State = StateDrifted
		}
		states = append(states, state)
	}
	for _, r := range c.Routines {
		if !slices.ContainsFunc(c.Files, func(f engine.File) bool { return f.Identity == r.Identity }) {
			states = append(states, RoutineStatus{Name: r.Identity, State: StateUnknown})
		}
	}
	return states
}

// Doctor says whether this database is fit to carry fences, installed or not. It writes nothing.
func (d *Deployer) Doctor(ctx context.Context) (DoctorResult, error) {
	result := DoctorResult{Findings: []Finding{}}
	all, err := readMigrations(d.engine.Migrations())
	if err != nil {
		return result, err
	}
	err = d.engine.Read(ctx, func(ctx context.Context, r engine.Reader) error {
		c, err := r.Catalogue(ctx, engine.TimelineInstalled)
		if err != nil {
			return err
		}
		health, err := r.Health(ctx)
		if err != nil {
			return err
		}
		result.Findings = slices.Concat(d.engine.ServerFindings(c), []Finding{deploymentFinding(d.engine, c, all)}, health)
		return nil
	})
	result.Status = gravest(result.Findings)
	return result, err
}

// gravest returns the status that a person should look at first.
func gravest(findings []Finding) FindingStatus {
	order := []FindingStatus{FindingOK, FindingUnknown, FindingWarning, FindingUnfit}
	status := FindingOK
	for _, f := range findings {
		if slices.Index(order, f.Status) > slices.Index(order, status) {
			status = f.Status
		}
	}
	return status
}

func deploymentFinding(e engine.Engine, c *engine.Catalogue, all []migration) Finding {
	f := Finding{Check: "deployment", Status: FindingOK}
	differences := compare(e, c, all)
	switch {
	case c.Schema == nil:
		f.Detail = "no fence is installed"
	case !c.Schema.Ours && !c.Schema.Empty:
		f.Status, f.Detail, f.Hint = FindingUnfit, "there is a schema named fence that is not fencectl's", "rename it, or use another database"
	case !c.Readable:
		f.Status, f.Detail, f.Hint = FindingUnknown, "this user may not read fence.deployment", e.Script().Join("fence_reader", c.User)
	case !c.Installed():
		f.Detail = "no fence is installed"
	case len(differences) > 0:
		f.Status, f.Hint = FindingWarning, "fencectl verify lists them"
		f.Detail = fmt.Sprintf("%d differences from what this fencectl would install, the first: %s", len(differences), differences[0].Object)
	default:
		f.Detail = fmt.Sprintf("migration %d, as this fencectl would install it", c.SchemaVersion())
	}
	return f
}
