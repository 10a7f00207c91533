package demo

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/devdb"
)

// workerArgument makes this test binary a worker.
const workerArgument = "be-a-demo-worker"

// server is the throwaway server of this test run, template a database on it with the fence.
var server *devdb.Server

const template = "fence_template"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArgument {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	// The stories wait most of the time: for leases to run out.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	var err error
	server, _, err = StartDatabase(ctx, devdb.Options{Settings: devdb.TestSettings()}, func(string) {})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	// Nobody may be connected to a template, and CreateDatabase connects to the database with the fence.
	if err := server.CreateDatabase(ctx, template, "postgres"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// newDatabase makes a database with the fence and returns its DSN for the superuser.
func newDatabase(t *testing.T) string {
	t.Helper()
	name := "demo_" + strings.ToLower(rand.Text()[:12])
	require.NoError(t, server.CreateDatabase(t.Context(), name, template))
	t.Cleanup(func() { _ = server.DropDatabase(context.Background(), name) })
	return server.DSN(name)
}

// newLogin makes a login with these roles and returns the DSN for it.
func newLogin(t *testing.T, dsn string, roles ...string) string {
	t.Helper()
	name := "login_" + strings.ToLower(rand.Text()[:12])
	conn := dial(t, dsn)
	execute(t, conn, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { _ = dropRole(dsn, name) })
	for _, role := range roles {
		execute(t, conn, "GRANT "+role+" TO "+name)
	}
	config := conn.Config()
	return fmt.Sprintf("postgres://%s:secret@127.0.0.1:%d/%s?sslmode=disable", name, config.Port, config.Database)
}

func dropRole(dsn, name string) error {
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), "DROP ROLE "+name)
	return err
}

func dial(t *testing.T, dsn string) *pgx.Conn {
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

func ask[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var answer T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&answer))
	return answer
}

// audience is a Teller that listens, and may have something to say.
type audience struct {
	scenes []string
	steps  []Step
	onStep func(Step) error
}

func (a *audience) Scene(title, text string) error {
	a.scenes = append(a.scenes, title+"\n"+text)
	return nil
}

func (a *audience) Step(s Step) error {
	a.steps = append(a.steps, s)
	if a.onStep == nil {
		return nil
	}
	return a.onStep(s)
}

// notes collects what is said to a person.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(slices.Clone(n.lines), "\n")
}

// on plays on a database, with workers that are this test binary.
func on(dsn string, teller Teller) (Options, *notes) {
	said := &notes{}
	return Options{DSN: dsn, Worker: []string{os.Args[0], workerArgument}, Teller: teller, Note: said.add}, said
}

// requireNoRows makes sure that no row of a demo is in the database, in any table of the fence.
func requireNoRows(t *testing.T, dsn string) {
	t.Helper()
	conn := dial(t, dsn)
	for _, table := range ownTables() {
		require.Zero(t, ask[int](t, conn, "SELECT count(*) FROM fence."+table+" WHERE resource LIKE 'demo/%'"), table)
	}
}

// requireNoSessions makes sure that no worker is connected any more.
func requireNoSessions(t *testing.T, dsn string) {
	t.Helper()
	conn := dial(t, dsn)
	require.NoError(t, poll(t.Context(), pollPause, func() (bool, error) {
		var sessions int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'fencectl demo/%'`).Scan(&sessions)
		return sessions == 0, err
	}))
}
