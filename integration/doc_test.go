// Package integration holds the conformance suite: what every engine must do, seen from outside.
//
// Start with conformance_test.go: it lists the behaviours, each a sentence, in the order in which a newcomer
// would want to know them. Each leads to a function in the file of its chapter.
//
// # Adding a behaviour
//
// Write a function that takes a [*Database] and add it to its chapter's list under a name that says what
// holds; the name is part of the test's path, and docs/testing.md refers to it. The database is the
// behaviour's own, freshly migrated, and gone afterwards; behaviours run in parallel.
//
//	func takeOverSupersedes(db *Database) {
//		a, b := db.session(), db.session()
//		token := a.takes("report:42")
//		db.expire("report:42")
//		b.takes("report:42")
//		a.gets("rejected: superseded", publish(token, "too late"))
//	}
//
// A [session] is a connection of its own. gets makes a [call] and demands its verdict: the outcome, with
// the reason of a refusal ("rejected: superseded"), or the kind of a failure ("busy", "retry",
// "invalid_argument: ttl_ms"). It returns the whole [answer].
//
// Races are forced, not hoped for: waitsOn returns when the call waits for a lock, and the test goes on to
// decide how the wait ends.
//
//	waiting := a.waitsOn(publish(token, "x"))
//	b.commits()
//	waiting.gets("rejected: superseded")
//
// Time is moved, not slept: expire and age change rows to be old.
//
// A behaviour that not every engine can show names what it needs ([capability]); where that is missing it is
// counted as not run. There is no "if" for an engine in a behaviour.
//
// # What it runs on
//
//   - FENCECTL_TEST_PG unset: the preferred PostgreSQL of this machine; "17": that version; "all": 14 to 18,
//     as far as installed (FENCECTL_PG_BINARIES adds installations).
//   - FENCECTL_TEST_PG_DSN: a server of yours, whose user may create databases; nothing is started.
//   - FENCECTL_TEST_PG=off, FENCECTL_TEST_MSSQL=off: without the one or the other.
//   - FENCECTL_TEST_MSSQL_DSN: a SQL Server of yours, whose login may create databases. Unset, a Babelfish in its
//     place, where one is installed (BABELFISH_HOME).
//   - FENCECTL_TEST_SUMMARY: a file to write the summary to, since `go test` hides what a passing package
//     prints.
package integration
