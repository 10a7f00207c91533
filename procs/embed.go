// Package procs holds the stored procedures of each engine, one routine a file, and says who may call them.
//
// They are applied whole whenever a file's content has changed, in the order given here, and do not go
// through goose: its parser cuts a body that is not annotated, without an error.
package procs

import (
	"embed"
	"fmt"
)

//go:embed postgres/*.sql mssql/*.sql
var files embed.FS

// Routine is one stored procedure of the schema fence.
type Routine struct {
	// Name is the routine's name without its schema.
	Name string
	// File is the path of its source, as the ledger and messages show it.
	File string
	// Internal routines serve the others: no role may execute them.
	Internal bool
}

// Source returns the routine's SQL, byte for byte as the file holds it.
func (r Routine) Source() string {
	source, err := files.ReadFile(r.File)
	if err != nil {
		// The names below and the embedded files are one build: a test reads every one of them.
		panic(fmt.Sprintf("read routine %s: %v", r.Name, err))
	}
	return string(source)
}

// Postgres returns the routines of the PostgreSQL engine in the order in which they are applied: a routine
// stands after those that it calls. walTimeline tells whether the engine shows its write-ahead log.
func Postgres(walTimeline bool) []Routine {
	timeline := "timeline_none"
	if walTimeline {
		timeline = "timeline_wal"
	}
	internal := func(name, file string) Routine {
		return Routine{Name: name, File: "postgres/" + file + ".sql", Internal: true}
	}
	public := func(name string) Routine {
		return Routine{Name: name, File: "postgres/" + name + ".sql"}
	}
	return []Routine{
		internal("examine_name", "examine_name"),
		internal("examine_duration", "examine_duration"),
		internal("examine_token", "examine_token"),
		internal("examine_policy", "examine_policy"),
		internal("assert_name", "assert_name"),
		internal("assert_duration", "assert_duration"),
		internal("assert_token", "assert_token"),
		internal("assert_policy", "assert_policy"),
		internal("refusal_reason", "refusal_reason"),
		internal("time_reason", "time_reason"),
		internal("bound_lock_wait", "bound_lock_wait"),
		internal("bound_idle_time", "bound_idle_time"),
		internal("timeline", timeline),
		internal("next_number", "next_number"),
		internal("next_generation", "next_generation"),
		internal("record_rejection", "record_rejection"),
		public("acquire"),
		public("renew"),
		public("release"),
		public("publish"),
		public("check"),
		public("require"),
		public("diagnose"),
		public("seize"),
		public("raise_floor"),
		public("remove"),
		public("prune"),
		public("about"),
	}
}

// MSSQL returns the routines of the SQL Server engine in the order in which they are applied: a routine
// stands after those that it calls.
func MSSQL() []Routine {
	internal := func(name string) Routine {
		return Routine{Name: name, File: "mssql/" + name + ".sql", Internal: true}
	}
	public := func(name string) Routine {
		return Routine{Name: name, File: "mssql/" + name + ".sql"}
	}
	return []Routine{
		internal("argument_state"),
		internal("assert_name"),
		internal("assert_duration"),
		internal("assert_token"),
		internal("assert_policy"),
		internal("plus_ms"),
		internal("refusal_reason"),
		internal("time_reason"),
		internal("next_generation"),
		internal("record_rejection"),
		internal("check_token"),
		public("acquire"),
		public("renew"),
		public("release"),
		public("publish"),
		public("check"),
		public("require"),
		public("diagnose"),
		public("seize"),
		public("raise_floor"),
		public("remove"),
		public("prune"),
		public("about"),
	}
}
