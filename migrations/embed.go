// Package migrations holds the versioned migrations of each engine: tables and views.
//
// They are applied by goose, in the order of their numbers, and are never edited once released.
package migrations

import "embed"

// Postgres holds the migrations of the PostgreSQL engine, in the folder postgres.
//
//go:embed postgres/*.sql
var Postgres embed.FS
