// Package clients_test runs the example programs, so that what people copy from them is known to work.
//
// A program is left out where its runtime is missing. What ran and what did not is logged, and written to the
// file that FENCECTL_TEST_SUMMARY names, with .clients behind its name: other packages write beside it.
package clients_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
)

// story is what every program prints.
const story = `slow acquire: acquired, generation 1
slow acquire again: replayed, generation 1
fast acquire: acquired, generation 2
fast publish: accepted, revision 1
fast publish again: replayed, revision 1
slow publish: rejected, superseded: fast has generation 2
slow check: rejected, superseded: fast has generation 2
fast check: ok
fast release: released
`

// client is one of the programs.
type client struct {
	file  string
	needs []string // a command that succeeds where its runtime is installed
	start func(ctx context.Context, dsn, resource string) (*exec.Cmd, error)
	// prints finds what the program printed in the standard error, for runtimes that print there; else nil.
	prints func(complaints string) string
}

// jdbc is where Debian puts the driver.
const jdbc = "/usr/share/java/postgresql.jar"

func postgresClients() []client {
	python := pythonProgram()
	return []client{
		{
			file:  "postgres.sql",
			needs: []string{"psql", "--version"},
			start: func(ctx context.Context, dsn, resource string) (*exec.Cmd, error) {
				return exec.CommandContext(ctx, "psql", dsn, "-X", "-q", "-v", "resource="+resource, "-f", "postgres.sql"), nil
			},
		},
		{
			file:  "python_postgres.py",
			needs: []string{python, "-c", "import psycopg2"},
			start: program(python, "python_postgres.py"),
		},
		{
			file:  "node_postgres.js",
			needs: []string{"node", "-e", "require('pg')"},
			start: program("node", "node_postgres.js"),
		},
		{
			file:  "JdbcPostgres.java",
			needs: []string{"javap", "-cp", jdbc, "org.postgresql.Driver"},
			start: func(ctx context.Context, dsn, resource string) (*exec.Cmd, error) {
				address, err := forJDBC(dsn)
				return exec.CommandContext(ctx, "java", "-cp", jdbc, "JdbcPostgres.java", address, resource), err
			},
		},
	}
}

func sqlServerClients() []client {
	python := pythonProgram()
	return []client{
		{
			file:   "sqlserver.sql",
			needs:  []string{"tsql", "-C"},
			start:  throughTsql,
			prints: messagesOfTsql,
		},
		{
			file:  "python_sqlserver.py",
			needs: []string{python, "-c", "import pymssql"},
			start: program(python, "python_sqlserver.py"),
		},
		{
			file:  "node_sqlserver.js",
			needs: []string{"node", "-e", "require('tedious')"},
			start: program("node", "node_sqlserver.js"),
		},
	}
}

func TestAStalledWorkerIsRefusedInEveryClientOfPostgreSQL(t *testing.T) {
	t.Parallel()
	options := devdb.Options{Settings: devdb.TestSettings(), LocalOnly: true}
	if version := os.Getenv("FENCECTL_TEST_PG"); version != "all" {
		options.Version = version
	}
	server, err := devdb.StartPostgres(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(t.Context(), "clients", ""))

	refuseInEach(t, "pgx", server.DSN("clients"), "PostgreSQL "+server.Version(), postgresClients())
}

func TestAStalledWorkerIsRefusedInEveryClientOfSQLServer(t *testing.T) {
	t.Parallel()
	settings := devdb.TestSettings()
	settings["statement_timeout"] = "60s" // cancelling is ignored there
	server, err := devdb.StartBabelfish(t.Context(), devdb.Options{Settings: settings})
	if errors.Is(err, devdb.ErrNoBabelfish) {
		note(t, "SQL Server: not run: there is no Babelfish on this machine")
		t.Skip("not run: there is no Babelfish on this machine")
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(t.Context(), "clients"))

	refuseInEach(t, "sqlserver", server.DSN("clients"), "Babelfish "+server.Version(), sqlServerClients())
}

func TestThePageShowsTheStoryAndEveryProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/any-client.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```\n"+story+"```\n")
	for _, c := range append(postgresClients(), sqlServerClients()...) {
		assert.Contains(t, string(page), "(../examples/clients/"+c.file+")")
	}
}

// refuseInEach installs the fence and the examples' table, and runs each program on a resource of its own.
func refuseInEach(t *testing.T, driver, dsn, title string, clients []client) {
	t.Helper()
	e, err := engine.Open(dsn, engine.Options{})
	require.NoError(t, err)
	_, err = deploy.New(e).Migrate(t.Context(), deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	require.NoError(t, err)
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	table, err := os.ReadFile("report.sql")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), string(table))
	require.NoError(t, err)

	for _, c := range clients {
		t.Run(c.file, func(t *testing.T) {
			_, err := os.Stat(c.file) // the test is run again when the program changes
			require.NoError(t, err)
			c.skipWithoutRuntime(t)
			resource := "report:" + c.file
			require.Equal(t, story, c.run(t, dsn, resource))

			var body string
			row := db.QueryRowContext(t.Context(), "SELECT body FROM report WHERE name = '"+resource+"'")
			require.NoError(t, row.Scan(&body), "the fast worker's write was committed")
			require.Equal(t, "by fast", body)
			note(t, c.file+": run on "+title)
		})
	}
}

func (c client) skipWithoutRuntime(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if output, err := exec.CommandContext(ctx, c.needs[0], c.needs[1:]...).CombinedOutput(); err != nil {
		note(t, fmt.Sprintf("%s: not run: %s fails", c.file, strings.Join(c.needs, " ")))
		t.Skipf("not run: %s: %v\n%s", strings.Join(c.needs, " "), err, output)
	}
}

// run returns what the program prints; complaints of its runtime are shown when it fails.
func (c client) run(t *testing.T, dsn, resource string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command, err := c.start(ctx, dsn, resource)
	require.NoError(t, err)
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var output, complaints strings.Builder
	command.Stdout, command.Stderr = &output, &complaints
	require.NoError(t, command.Run(), "%s%s", &output, &complaints)
	if c.prints != nil {
		return c.prints(complaints.String())
	}
	return output.String()
}

// program starts a file that takes the DSN and the resource.
func program(runtime, file string) func(ctx context.Context, dsn, resource string) (*exec.Cmd, error) {
	return func(ctx context.Context, dsn, resource string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, runtime, file, dsn, resource), nil
	}
}

// note adds a line to the summary.
func note(t *testing.T, line string) {
	t.Helper()
	t.Log(line)
	name := os.Getenv("FENCECTL_TEST_SUMMARY")
	if name == "" {
		return
	}
	file, err := os.OpenFile(name+".clients", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintln(file, "clients: "+line)
	require.NoError(t, errors.Join(err, file.Close()))
}

// forJDBC writes a PostgreSQL URL as that driver wants it: the login among the parameters.
func forJDBC(dsn string) (string, error) {
	parsed, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the DSN is not a URL") // the error would show the password
	}
	values := parsed.Query()
	word, _ := parsed.User.Password()
	values.Set("user", parsed.User.Username())
	values.Set("password", word)
	return "jdbc:postgresql://" + parsed.Host + parsed.Path + "?" + values.Encode(), nil
}

// pythonProgram prefers Debian's, which has Debian's drivers, where there are several.
func pythonProgram() string {
	const debian = "/usr/bin/python3"
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return "python3"
}
