package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const template = "fence_template"

// server is the throwaway server of this test run; each test has a database of its own on it.
var server *devdb.Server

// scratch is a folder for what several tests share; it goes with the test run.
var scratch string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (code int) {
	ctx := context.Background()
	var err error
	if scratch, err = os.MkdirTemp("", "fencectl-cli-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	if server, err = devdb.StartPostgres(ctx, devdb.Options{Settings: devdb.TestSettings()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	defer func() {
		if babelfish.server != nil {
			_ = babelfish.server.Stop(ctx)
		}
	}()
	if err := prepareTemplate(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func prepareTemplate(ctx context.Context) error {
	if err := server.CreateDatabase(ctx, template, ""); err != nil {
		return err
	}
	var stderr bytes.Buffer
	if code := Main(ctx, []string{"migrate", "--dsn", server.DSN(template)}, nil, io.Discard, &stderr, nil); code != 0 {
		return fmt.Errorf("migrate the template: exit code %d: %s", code, &stderr)
	}
	return nil
}

// emptyDatabase creates a database without a fence and returns its DSN.
func emptyDatabase(t *testing.T) string { return createDatabase(t, "") }

// newDatabase copies the template and returns the DSN of the copy.
func newDatabase(t *testing.T) string { return createDatabase(t, template) }

func createDatabase(t *testing.T, template string) string {
	t.Helper()
	name := "cli_" + strings.ToLower(rand.Text()[:12])
	require.NoError(t, server.CreateDatabase(t.Context(), name, template))
	t.Cleanup(func() { _ = server.DropDatabase(context.Background(), name) })
	return server.DSN(name)
}

// connect opens a connection of the test's own.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// lease takes a lease without the command line.
func lease(t *testing.T, dsn, resource, owner string) procedures.Token {
	t.Helper()
	answer, err := procedures.Postgres{DB: connect(t, dsn)}.Acquire(t.Context(), procedures.AcquireParams{
		Resource: resource, Owner: owner, TTLMS: 600_000,
	})
	require.NoError(t, err)
	require.Equal(t, procedures.Acquired, answer.Outcome)
	return procedures.Token{Resource: resource, Owner: owner, Generation: *answer.Generation}
}

// expire lets a lease be over since a second ago.
func expire(t *testing.T, dsn, resource string) {
	t.Helper()
	execute(t, connect(t, dsn),
		"UPDATE fence.lease_term SET lease_until = clock_timestamp() - interval '1 second' WHERE resource = $1", resource)
}

// holdRow keeps the row of a resource locked until the test ends.
func holdRow(t *testing.T, dsn, resource string) {
	t.Helper()
	conn := connect(t, dsn)
	execute(t, conn, "BEGIN")
	execute(t, conn, "SELECT FROM fence.lease WHERE resource = $1 FOR UPDATE", resource)
	execute(t, conn, "SELECT FROM fence.lease_term WHERE resource = $1 FOR UPDATE", resource)
}

// result is what a command leaves behind.
type result struct {
	code   int
	stdout string
	stderr string
}

// shell runs commands as a person or a script would.
type shell struct {
	ctx    context.Context // the test's own unless set
	env    []string
	stdin  io.Reader
	stderr io.Writer // gets a copy
}

// on is a shell whose environment names the database.
func on(dsn string) shell { return shell{env: []string{"FENCECTL_DSN=" + dsn}} }

func (s shell) run(t *testing.T, args ...string) result {
	t.Helper()
	ctx := s.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	stdin := s.stdin
	if stdin == nil {
		stdin = strings.NewReader("{}")
	}
	var stdout, stderr bytes.Buffer
	var errors io.Writer = &stderr
	if s.stderr != nil {
		errors = io.MultiWriter(&stderr, s.stderr)
	}
	code := Main(ctx, args, stdin, &stdout, errors, s.env)
	return result{code, stdout.String(), stderr.String()}
}

// object parses standard output as one JSON object.
func (r result) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &object), "stdout: %s\nstderr: %s", r.stdout, r.stderr)
	return object
}

// array parses standard output as an array of objects.
func (r result) array(t *testing.T) []map[string]any {
	t.Helper()
	var array []map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &array), "stdout: %s\nstderr: %s", r.stdout, r.stderr)
	require.NotNil(t, array, "an array, not null")
	return array
}

// failure parses standard output as an error object, and checks that nothing of it is missing.
func (r result) failure(t *testing.T) map[string]any {
	t.Helper()
	object := r.object(t)
	require.Len(t, object, 1)
	failure, ok := object["error"].(map[string]any)
	require.True(t, ok, "stdout: %s", r.stdout)
	for _, key := range []string{"kind", "message", "sqlstate", "retryable", "outcome_unknown", "hint"} {
		require.Contains(t, failure, key)
	}
	require.NotEmpty(t, failure["kind"])
	require.NotEmpty(t, failure["message"])
	require.NotEmpty(t, failure["hint"], "every error names the next step")
	return failure
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}
