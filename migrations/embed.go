// Package migrations holds the versioned migrations of each engine: tables and views.
//
// They are applied by goose, in the order of their numbers, and are never edited once released.
package migrations

import "embed"

// Postgres holds the migrations of the PostgreSQL engine, in the folder postgres.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// MSSQL holds the migrations of the SQL Server engine, in the folder mssql.
//
//go:embed mssql/*.sql
var MSSQL embed.FS
