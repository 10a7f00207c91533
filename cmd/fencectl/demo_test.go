//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The environment of somebody who works on databases that a demo has no business with.
func elsewhere() []string {
	return []string{
		"FENCECTL_DSN=postgres://app:geheim@127.0.0.1:1/production", "PGSERVICE=no-such-service", "PGHOST=127.0.0.1", "PGPORT=1",
		"PGTARGETSESSIONATTRS=standby",
	}
}

func TestDemoTellsItsStoryInATable(t *testing.T) {
	t.Parallel()
	began := time.Now()
	code, stdout, p := run(t, nil, "demo")
	require.Zero(t, code, "%s", p.stderr)
	t.Logf("took %s, of the 15 s that it may take on an idle machine", time.Since(began).Round(time.Millisecond))
	p.requireNothingLeft(t)
	for _, want := range []string{
		"ACTOR     CALL               OUTCOME   REASON      GEN  WHAT IT SHOWS\n",
		" 7  A         publish            rejected  superseded    1  ",
		"14  A         publish unexpired  rejected  expired       1  ",
		"All 27 steps came out as told.\n",
	} {
		require.Contains(t, stdout, want)
	}
	if runtime.GOOS == "linux" {
		require.Contains(t, stdout, "stands still (state T)")
	}
	for line := range strings.Lines(stdout) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 100, line)
	}
}

func TestDemoIgnoresOtherDatabasesAndSaysSo(t *testing.T) {
	t.Parallel()
	code, stdout, p := run(t, elsewhere(), "demo", "-o", "json")
	require.Zero(t, code, "%s", p.stderr)
	p.requireNothingLeft(t)
	for _, name := range []string{"ignored: ", "FENCECTL_DSN", "PGHOST", "PGSERVICE", "only with --dsn"} {
		require.Contains(t, p.stderr.String(), name)
	}
	require.NotContains(t, p.stderr.String(), "geheim")

	var steps []map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &steps))
	require.Len(t, steps, 27)
	for _, step := range steps {
		for _, key := range []string{"actor", "call", "outcome", "reason", "generation", "late_ms"} {
			require.Contains(t, step, key)
		}
	}
	require.Equal(t, "superseded", steps[6]["reason"])
	require.Equal(t, "accepted", steps[12]["outcome"])
	require.Greater(t, steps[12]["late_ms"], 0.0)
	require.Equal(t, "expired", steps[13]["reason"])
}

func TestDemoIgnoresTheConfigurationFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.yaml")
	require.NoError(t, os.WriteFile(file, []byte("dsn: postgres://app@127.0.0.1:1/production\n"), 0o600))
	p := start(t, nil, "demo", "-o", "jsonl", "--config", file)
	require.Contains(t, p.line(t), `"acquired"`)
	require.Contains(t, p.stderr.String(), "ignored: "+file)
	p.ctrlC(t)
	p.rest(t)
	require.Equal(t, 130, p.wait(t))
	p.requireNothingLeft(t)
}

// A worker that stands still cannot end by itself, and its next call is waiting for it.
func TestDemoInterruptedWhileAWorkerIsStopped(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, "demo", "-o", "jsonl")
			p.until(t, `"stopped"`)
			p.signalGroup(t, s)
			require.Contains(t, p.rest(t), `{"error":{"kind":"interrupted"`)
			require.Equal(t, 130, p.wait(t))
			p.requireNothingLeft(t)
		})
	}
}

func TestDemoInterruptedAtAnyMoment(t *testing.T) {
	t.Parallel()
	const moments, apart = 4, 1500 * time.Millisecond
	for i := range moments {
		// Spread over the start of the server, its migration and the story.
		after := time.Duration(i)*apart + rand.N(apart)
		t.Run(fmt.Sprintf("moment %d", i+1), func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, "demo", "-o", "json")
			select {
			case <-time.After(after):
			case <-p.ended:
			}
			p.ctrlC(t)
			stdout := p.rest(t)
			code := p.wait(t)
			p.requireNothingLeft(t)
			require.Contains(t, []int{0, 130}, code, "after %s: %s", after, p.stderr)
			require.True(t, json.Valid([]byte(stdout)), "one document, after %s: %s", after, stdout)
			if code != 0 {
				require.Contains(t, stdout, `{"error":{"kind":"interrupted"`, "after %s", after)
			}
		})
	}
}

func TestDemoWhoseReaderLeavesCleansUp(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "demo")
	p.line(t)
	require.NoError(t, p.stdout.Close())
	require.Equal(t, 1, p.wait(t))
	p.requireNothingLeft(t)
}

// Nobody is left to end the workers, one of which stands still.
func TestKilledDemoTakesItsProcessesAlong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux has a parent-death signal")
	}
	p := start(t, nil, "demo", "-o", "jsonl")
	p.until(t, `"stopped"`)
	require.GreaterOrEqual(t, len(p.descendants(t)), 4, "demo, two workers, a server")
	require.NoError(t, p.cmd.Process.Kill())
	p.wait(t)
	eventually(t, "all processes are gone", func() bool { return len(p.descendants(t)) == 0 })
}

func TestDemoTakesADatabaseFromItsOwnFlagAlone(t *testing.T) {
	t.Parallel()
	code, _, p := run(t, nil, "demo", "--dsn-file", "somewhere")
	require.Equal(t, 2, code)
	require.Contains(t, p.stderr.String(), "--dsn alone")
	code, _, p = run(t, nil, "demo", "--dsn", "")
	require.Equal(t, 2, code)
	require.Contains(t, p.stderr.String(), "--dsn is empty")
}

func TestDemoOnADatabaseOfTheUsers(t *testing.T) {
	t.Parallel()
	dev := start(t, nil, "dev")
	dsn := dev.line(t)
	code, stdout, p := run(t, elsewhere()[:1], "demo", "--dsn", dsn, "-o", "jsonl")
	require.Zero(t, code, "%s", p.stderr)
	require.Equal(t, 27, strings.Count(stdout, "\n"))
	require.Empty(t, p.stderr.String(), "nothing stays, and nothing is ignored that was not meant")
	require.Zero(t, query[int](t, dsn, "SELECT count(*) FROM fence.lease"))
	require.Zero(t, query[int](t, dsn, "SELECT count(*) FROM fence.rejection"))

	perform(t, dsn, "CREATE DATABASE empty TEMPLATE template0")
	code, stdout, p = run(t, nil, "demo", "--dsn", strings.Replace(dsn, "/postgres?", "/empty?", 1), "-o", "json")
	require.Equal(t, 3, code, "%s", p.stderr)
	require.Contains(t, stdout, `"kind":"not_installed"`)
	require.Contains(t, stdout, `fencectl migrate`)
	require.False(t, query[bool](t, strings.Replace(dsn, "/postgres?", "/empty?", 1), "SELECT to_regnamespace('fence') IS NOT NULL"))

	// The fence of this database lets stale workers publish.
	perform(t, dsn, `DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('fence.publish'::regproc),
		'AND l.generation = p_generation AND l.owner = p_owner AND l.released_at IS NULL', ''); END $do$`)
	code, stdout, p = run(t, nil, "demo", "--dsn", dsn, "-o", "json")
	require.Equal(t, 1, code, "%s", p.stderr)
	var failure struct {
		Error struct {
			Message string
			Steps   []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &failure))
	require.Contains(t, failure.Error.Message, "step 7 (A: publish) differs: expected rejected superseded, found accepted")
	require.Len(t, failure.Error.Steps, 7)
	require.Zero(t, query[int](t, dsn, "SELECT count(*) FROM fence.lease"))
}

// until reads standard output up to a line that holds the text.
func (p *program) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(p.line(t), text) {
	}
}
