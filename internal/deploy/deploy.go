// Package deploy installs, upgrades, checks and removes the fence in a database.
//
// [Deployer.Migrate] is one run under one lock: preflight, roles, schema, versioned migrations, floor, routines
// with their grants and ledger rows in a single transaction, and a closing verification. Each of its
// transactions leaves a state that the next run completes, so that a run may be killed anywhere.
//
// The reading commands (Status, Verify, Doctor, and Migrate with DryRun) run in read-only transactions, take
// no lock, also work through a transaction-mode pooler, and need no more than one of our roles.
//
// # Grants
//
// The roles of procs.Roles and PUBLIC have exactly the grants of docs/permissions.md on our objects: Verify
// reports more or less as a difference, and Migrate revokes and grants until it fits. What somebody granted to
// another role by name (a monitoring user, say) is theirs to decide: Verify mentions it as a note, and Migrate
// keeps it, also when it has to drop and create a routine.
package deploy

import (
	"io"
	"time"

	"github.com/fencectl/fencectl/internal/engine"
)

// Error is the failure of a command: what kind it is, and what to do about it. Get at it with errors.As.
type Error = engine.Error

// Kind says what a failed command calls for; see the constants of package engine.
type Kind = engine.Kind

// KindOf returns the kind of a command's error.
func KindOf(err error) Kind { return engine.KindOf(err) }

// DefaultLockTimeout is how long a command should wait for the migration lock if its user does not say.
const DefaultLockTimeout = time.Minute

// Deployer runs the commands against one database. Each command opens a connection of its own and closes it.
type Deployer struct {
	engine engine.Engine
}

// New returns a Deployer for the database that the engine was opened for.
func New(e engine.Engine) *Deployer { return &Deployer{engine: e} }

// Roles says where the database roles come from.
type Roles string

const (
	// RolesCreate creates the roles that are missing. It needs CREATEROLE only if one is.
	RolesCreate Roles = "create"
	// RolesExisting expects them, and names those that are missing with the SQL that creates them.
	RolesExisting Roles = "existing"
)

// Phase is a part of a run.
type Phase string

// Phases, in the order in which they run.
const (
	PhaseConnect   Phase = "connect"
	PhaseLock      Phase = "lock"
	PhasePreflight Phase = "preflight"
	PhaseRoles     Phase = "roles"
	PhaseSchema    Phase = "schema"
	PhaseMigration Phase = "migration"
	PhaseFloor     Phase = "floor"
	PhaseRoutines  Phase = "routines"
	PhaseVerify    Phase = "verify"
	PhaseDrop      Phase = "drop"
)

// Step reports progress: it is about to do this. It is called from the command's goroutine; a slow callback
// slows the run down.
type Step struct {
	Phase Phase `json:"phase"`
	// Name of what it works on (a migration's file, a routine), or of the session waited for; may be empty.
	Name string `json:"name,omitempty"`
	// Number and Total count within the phase, from 1; 0 where there is nothing to count.
	Number int `json:"number,omitempty"`
	Total  int `json:"total,omitempty"`
	// Elapsed is the time since the command began.
	Elapsed time.Duration `json:"elapsed_ns"`
}

// MigrateOptions configure [Deployer.Migrate]. The zero value migrates to the newest version, creates the
// missing roles, and does not wait for a lock.
type MigrateOptions struct {
	// To is the migration to stop after; 0 is the newest. Routines are applied only at the newest version,
	// since they need its tables. A version that is behind the database's changes no table.
	To int64
	// Roles is where the roles come from; empty is RolesCreate.
	Roles Roles
	// LockTimeout is how long to wait for the migration lock, and for each table that a migration locks (at
	// least a second there). 0: one attempt, no waiting.
	LockTimeout time.Duration
	// Floor raises the global floor to at least this: generations start above it. Nil leaves it alone.
	// 0 to 2^62.
	Floor *int64
	// DryRun, where not nil, gets the SQL of all that is pending, as a script for psql, instead of the database.
	DryRun io.Writer
	// Progress is called before each step; may be nil.
	Progress func(Step)
}

// MigrateResult says what a run did, or, for a dry run, what it would do.
type MigrateResult struct {
	DryRun bool `json:"dry_run"`
	// Changed tells whether anything was (would be) written.
	Changed bool `json:"changed"`
	// VersionBefore and VersionAfter are the newest applied migration; 0 is none.
	VersionBefore int64 `json:"version_before"`
	VersionAfter  int64 `json:"version_after"`
	// Migrations, Roles and Routines that were applied, created and (re-)applied.
	Migrations []string `json:"migrations"`
	Roles      []string `json:"roles"`
	Routines   []string `json:"routines"`
	// Dropped routines: stale overloads, and routines that are no longer part of the fence.
	Dropped []string `json:"dropped"`
	// Grants tells whether grants were (would be) set anew.
	Grants bool `json:"grants"`
	// Floor is the global floor after the run: generations are higher. Nil after a dry run.
	Floor *int64 `json:"floor,omitempty"`
	// Notes are things that a person may want to know and that are no failure.
	Notes []string `json:"notes"`
}

// State is how one object compares with what this program would install.
type State string

// States of migrations and routines.
const (
	StateCurrent State = "current" // as this program would install it
	StatePending State = "pending" // migrate would apply it
	StateDrifted State = "drifted" // somebody changed it by hand; migrate would apply it again
	StateUnknown State = "unknown" // installed, and not known to this program: a newer one did it, or a person
)

// StatusResult says what is installed.
type StatusResult struct {
	Engine        string `json:"engine"`
	EngineVersion string `json:"engine_version"`
	Database      string `json:"database"`
	// Installed is false when there is no fence here; the lists then show all as pending.
	Installed bool `json:"installed"`
	// UpToDate tells that migrate would change nothing that Status looks at.
	UpToDate bool `json:"up_to_date"`
	// Version is the newest applied migration, Newest the newest that this program knows.
	Version    int64             `json:"version"`
	Newest     int64             `json:"newest"`
	Migrations []MigrationStatus `json:"migrations"`
	Routines   []RoutineStatus   `json:"routines"`
	Roles      []RoleStatus      `json:"roles"`
	// Notes say, for instance, what this user may not see.
	Notes []string `json:"notes"`
}

// MigrationStatus is a migration's state: current, pending or unknown.
type MigrationStatus struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name,omitempty"`
	State     State      `json:"state"`
	AppliedAt *time.Time `json:"applied_at,omitempty"`
}

// RoutineStatus is a routine's state.
type RoutineStatus struct {
	Name      string     `json:"name"`
	File      string     `json:"file,omitempty"`
	State     State      `json:"state"`
	AppliedAt *time.Time `json:"applied_at,omitempty"`
	AppliedBy string     `json:"applied_by,omitempty"`
}

// RoleStatus tells whether a role exists.
type RoleStatus struct {
	Name    string `json:"name"`
	Purpose string `json:"purpose"`
	Exists  bool   `json:"exists"`
}

// DownOptions configure [Deployer.Down].
type DownOptions struct {
	// To is the migration that remains the newest; 0 takes all of them back. fence.floor and fence.epoch
	// stay in any case, so that no generation is given out twice.
	To int64
	// AllowDestructive says that leases, publications and records may be dropped.
	AllowDestructive bool
	// LockTimeout and Progress: see MigrateOptions.
	LockTimeout time.Duration
	Progress    func(Step)
}

// DownResult says what was taken back.
type DownResult struct {
	VersionBefore int64    `json:"version_before"`
	VersionAfter  int64    `json:"version_after"`
	Migrations    []string `json:"migrations"`
	// Dropped routines: all of them, as soon as one migration is taken back.
	Dropped []string `json:"dropped"`
	// Floor is the global floor: later generations are higher. Nil where there is none.
	Floor *int64 `json:"floor,omitempty"`
}

// UninstallOptions configure [Deployer.Uninstall].
type UninstallOptions struct {
	// AllowDestructive says that everything may be dropped, the floor included.
	AllowDestructive bool
	// LockTimeout and Progress: see MigrateOptions.
	LockTimeout time.Duration
	Progress    func(Step)
}

// UninstallResult says what is gone and what remains.
type UninstallResult struct {
	// Uninstalled is false when there was nothing to uninstall.
	Uninstalled bool `json:"uninstalled"`
	// HighestGeneration is the highest number that was given out or reserved. A later installation that must
	// not repeat it starts with MigrateOptions.Floor set to it. Nil when there was nothing to uninstall, which
	// tells nothing about what was given out before.
	HighestGeneration *int64 `json:"highest_generation"`
	// RemainingRoles belong to the whole server, where another database may use them: they stay.
	RemainingRoles []string `json:"remaining_roles"`
	// DropRolesSQL drops them, for those who know that nobody else needs them.
	DropRolesSQL string `json:"drop_roles_sql,omitempty"`
}

// VerifyResult lists where the database differs from what this program would install.
type VerifyResult struct {
	Installed bool `json:"installed"`
	// Clean is true when there is no difference.
	Clean       bool         `json:"clean"`
	Differences []Difference `json:"differences"`
	// Notes are no differences: grants to other roles, and what this user may not see.
	Notes []string `json:"notes"`
}

// DifferenceKind says in which way something differs.
type DifferenceKind string

// Kinds of differences.
const (
	DifferenceMissing    DifferenceKind = "missing"    // should be there
	DifferenceChanged    DifferenceKind = "changed"    // is not as it should be
	DifferenceUnexpected DifferenceKind = "unexpected" // should not be there
	DifferencePending    DifferenceKind = "pending"    // migrate has not been run with this version
)

// Difference is one thing that is not as it should be.
type Difference struct {
	Kind DifferenceKind `json:"kind"`
	// Object names it, for instance "function fence.acquire".
	Object   string `json:"object"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	// Mend says what to do.
	Mend string `json:"mend"`
}

// Finding is what one check of [Deployer.Doctor] found.
type Finding = engine.Finding

// FindingStatus is the verdict of one check.
type FindingStatus = engine.FindingStatus

// Verdicts. Unknown means that this user may not see it, or that it cannot be seen from here: never "fine".
const (
	FindingOK      = engine.FindingOK
	FindingWarning = engine.FindingWarning
	FindingUnfit   = engine.FindingUnfit
	FindingUnknown = engine.FindingUnknown
)

// DoctorResult says whether this database is fit to carry fences.
type DoctorResult struct {
	// Status is the gravest of the findings: unfit, then warning, then unknown, then ok.
	Status   FindingStatus `json:"status"`
	Findings []Finding     `json:"findings"`
}
