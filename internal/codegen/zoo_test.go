package codegen

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/devdb"
)

// The round trips: callers of routines that answer with what they are given are generated, compiled and run, with
// values at the limits of each type.

func TestValuesComeBackFromPostgreSQLAsSent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := devdb.StartPostgres(ctx, devdb.Options{Settings: devdb.TestSettings()})
	if errors.Is(err, devdb.ErrNoPostgres) {
		t.Skip("not run: there is no PostgreSQL on this machine")
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(ctx, "zoo", ""))
	conn, err := pgx.Connect(ctx, server.DSN("zoo"))
	require.NoError(t, err)
	defer conn.Close(ctx)
	zoo := readCase(t, "pg_types")
	var columns, params, places []string
	for _, p := range zoo.Params {
		columns = append(columns, p.Name+" "+p.Type.SQL)
		params = append(params, p.Name+" "+p.Type.SQL)
		places = append(places, "zoo."+p.Name)
	}
	_, err = conn.Exec(ctx, "CREATE SCHEMA app; CREATE TYPE app.zoo_row AS ("+strings.Join(columns, ", ")+"); "+
		"CREATE FUNCTION app.zoo("+strings.Join(params, ", ")+") RETURNS app.zoo_row LANGUAGE sql AS $$ SELECT "+strings.Join(places, ", ")+" $$")
	require.NoError(t, err)
	runZoo(t, "postgres", server.DSN("zoo"), "pg_types", "pg_nullable")
}

func TestValuesComeBackFromTSQLAsSent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := devdb.StartBabelfish(ctx, devdb.Options{Settings: devdb.TestSettings()})
	if errors.Is(err, devdb.ErrNoBabelfish) {
		t.Skip("not run: there is no Babelfish on this machine")
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(ctx, "zoo"))
	db, err := sql.Open("sqlserver", server.DSN("zoo"))
	require.NoError(t, err)
	defer db.Close()
	zoo := readCase(t, "mssql_types")
	var params, columns []string
	for _, p := range zoo.Params {
		// Babelfish keeps six digits of a second.
		params = append(params, "@"+p.Name+" "+strings.ReplaceAll(p.Type.SQL, "(7)", "(6)"))
		columns = append(columns, "@"+p.Name+" AS "+p.Name)
	}
	for _, statement := range []string{
		"CREATE SCHEMA app",
		"CREATE PROCEDURE app.zoo " + strings.Join(params, ", ") + " AS SET NOCOUNT ON; SELECT " + strings.Join(columns, ", "),
	} {
		_, err = db.ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	runZoo(t, "mssql", server.DSN("zoo"), "mssql_types", "mssql_nullable")
}

func readCase(t *testing.T, name string) Routine {
	t.Helper()
	var input struct {
		Routines []Routine `json:"routines"`
	}
	text, err := os.ReadFile(filepath.Join("testdata", "emit", name, "model.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &input))
	return input.Routines[0]
}

// runZoo runs the program of testdata/zoo for one engine on callers that are generated now.
func runZoo(t *testing.T, engine, dsn string, cases ...string) {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range cases {
		for file, content := range emitCase(t, filepath.Join("testdata", "emit", name)) {
			files[name+"/"+file] = content
		}
	}
	for _, name := range []string{engine, "same"} {
		text, err := os.ReadFile(filepath.Join("testdata", "zoo", name+".go.txt"))
		require.NoError(t, err)
		files["zoo_"+engine+"/"+name+".go"] = text
	}
	list, _ := overlay(t, files)
	run := exec.Command("go", "run", "-overlay", list, "./overlaid/zoo_"+engine)
	run.Env = append(os.Environ(), "ZOO_DSN="+dsn, "TZ=UTC")
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "as sent\n", string(out))
}
