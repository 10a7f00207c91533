//go:build unix

package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

// order is what a child is to do.
type order struct {
	DSN     string
	Command string // migrate, down or uninstall
	// KillAfter is the number of the statement after which the child kills itself; 0: it does not.
	KillAfter int
}

func init() { child = runOrder }

func runOrder() int {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	err := runCommand(context.Background(), o.Command, o.DSN, func(n int, _ string) {
		if n == o.KillAfter {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runCommand(ctx context.Context, command, dsn string, after func(int, string)) error {
	e, err := engine.Open(dsn, engine.Options{AfterStatement: after})
	if err != nil {
		return err
	}
	d := deploy.New(e)
	switch command {
	case "migrate":
		floor := int64(1000)
		_, err = d.Migrate(ctx, deploy.MigrateOptions{LockTimeout: time.Minute, Floor: &floor})
	case "down":
		_, err = d.Down(ctx, deploy.DownOptions{AllowDestructive: true, LockTimeout: time.Minute})
	case "uninstall":
		_, err = d.Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true, LockTimeout: time.Minute})
	}
	return err
}

// start starts a child.
func (o order) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd
}

// killed waits for a child and tells whether SIGKILL ended it.
func killed(t *testing.T, cmd *exec.Cmd) bool {
	t.Helper()
	err := cmd.Wait()
	if err == nil {
		return false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "the child failed: %v", err)
	return true
}

// workers run a function for each number up to n, a few at a time, each with a database without a fence. A
// function that fails the test ends only itself.
func workers(t *testing.T, n int, work func(int, *database)) {
	t.Helper()
	// Emptying a database is much cheaper than making one.
	free := make(chan *database, 3)
	for range cap(free) {
		free <- newDatabase(t)
	}
	var group sync.WaitGroup
	for i := 1; i <= n; i++ {
		db := <-free
		group.Go(func() {
			defer func() { free <- db }()
			db.exec("DROP SCHEMA IF EXISTS fence CASCADE")
			work(i, db)
		})
	}
	group.Wait()
}

// statements counts those of a command, with the last one.
func statements(t *testing.T, command, dsn string) int {
	t.Helper()
	total := 0
	require.NoError(t, runCommand(context.Background(), command, dsn, func(n int, _ string) { total = n }))
	return total
}

// completes requires that the next run of migrate completes whatever state the last one left. The run itself
// ends with a verification.
func (db *database) completes() {
	db.t.Helper()
	require.NoError(db.t, runCommand(context.Background(), "migrate", db.dsn, nil))
	require.Equal(db.t, "1,2,3,4,5,6 floor 1000", db.text(`
SELECT string_agg(v.version_id::text, ',' ORDER BY v.id) || ' floor ' || (SELECT f.at_least FROM fence.floor f)
  FROM fence.goose_db_version v WHERE v.version_id > 0`))
}

// boundaries are the statements of a migrate after which the database may look different than after the one
// before: all but those that follow a reading one and only read themselves.
func boundaries(t *testing.T, dsn string) []int {
	t.Helper()
	reads := regexp.MustCompile(`(?i)^\s*(SELECT|WITH|SAVEPOINT|RELEASE|ROLLBACK TO)\b`)
	var numbers []int
	before := false
	require.NoError(t, runCommand(context.Background(), "migrate", dsn, func(n int, sql string) {
		read := reads.MatchString(sql)
		if !read || !before {
			numbers = append(numbers, n)
		}
		before = read
	}))
	return numbers
}

func TestAMigrateThatIsKilledAfterAnyStatementIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	newInstalled(t) // the roles are there from now on
	numbers := boundaries(t, newDatabase(t).dsn)
	require.Greater(t, len(numbers), 70)
	workers(t, len(numbers), func(i int, db *database) {
		require.True(t, killed(t, order{DSN: db.dsn, Command: "migrate", KillAfter: numbers[i-1]}.start(t)), "statement %d", numbers[i-1])
		db.completes()
	})
	t.Logf("killed after %d statements, the last one being number %d", len(numbers), numbers[len(numbers)-1])
}

// Roles are the server's: this test has one of its own.
func TestAMigrateThatIsKilledWhileItCreatesRolesIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	counted := own.newDatabase(t)
	var numbers []int
	require.NoError(t, runCommand(context.Background(), "migrate", counted.dsn, func(n int, sql string) {
		if strings.Contains(sql, "CREATE ROLE") {
			numbers = append(numbers, n)
		}
	}))
	require.Len(t, numbers, len(procs.Roles()))
	for n := numbers[0] - 1; n <= numbers[len(numbers)-1]+1; n++ {
		own.dropRoles(t)
		db := own.newDatabase(t)
		require.True(t, killed(t, order{DSN: db.dsn, Command: "migrate", KillAfter: n}.start(t)))
		db.completes()
	}
}

func TestAMigrateThatIsKilledAtAnyMomentIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	count := 0
	var mutex sync.Mutex
	workers(t, 16, func(_ int, db *database) {
		cmd := order{DSN: db.dsn, Command: "migrate"}.start(t)
		time.AfterFunc(time.Duration(rand.Int64N(int64(600*time.Millisecond))), func() { _ = cmd.Process.Kill() })
		if killed(t, cmd) {
			mutex.Lock()
			count++
			mutex.Unlock()
		}
		db.completes()
	})
	t.Logf("killed %d of 16 before they were done", count)
}

func TestADownOrUninstallThatIsKilledIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"down", "uninstall"} {
		total := statements(t, command, newInstalled(t).dsn)
		workers(t, 8, func(i int, db *database) {
			db.migrate()
			db.exec("SELECT FROM fence.acquire('r', 'o', 60000); UPDATE fence.lease SET generation = 77")
			n := i * total / 8
			require.True(t, killed(t, order{DSN: db.dsn, Command: command, KillAfter: n}.start(t)))
			if db.text("SELECT to_regclass('fence.lease')::text") == "" && command == "down" {
				require.Equal(t, "77", db.text("SELECT at_least::text FROM fence.floor"))
			}
			require.NoError(t, runCommand(context.Background(), command, db.dsn, nil))
			if command == "uninstall" {
				require.Empty(t, db.text("SELECT to_regnamespace('fence')::text"))
			} else {
				require.Equal(t, "77", db.text("SELECT at_least::text FROM fence.floor"))
			}
			db.completesFrom(command)
		})
	}
}

// completesFrom migrates again after everything was taken back.
func (db *database) completesFrom(command string) {
	db.t.Helper()
	db.completes()
	generation := db.text("SELECT generation::text FROM fence.acquire('r', 'o', 60000)")
	require.Equal(db.t, "1001", generation, command)
}
