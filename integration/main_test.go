package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// theRun is what this test binary runs on. TestMain makes it before the first test.
var theRun *testRun

func TestMain(m *testing.M) {
	theRun = &testRun{}
	code := m.Run()
	if err := theRun.end(); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

// testRun keeps the engines of one run, which are started by the first test that needs them, and counts
// what was run on each.
type testRun struct {
	start sync.Once

	mu      sync.Mutex
	engines []engine
	missing []string // engines and tests that could not be run, with the reason
	failure error
	tally   map[string]*tally
}

// tally counts behaviours on one engine.
type tally struct {
	run    int
	failed int
	notRun map[capability]int
}

// eachEngine runs a test on every engine of this run.
func eachEngine(t *testing.T, test func(t *testing.T, e engine)) {
	t.Helper()
	theRun.start.Do(func() {
		engines, missing, err := startEngines(context.Background())
		theRun.mu.Lock()
		defer theRun.mu.Unlock()
		theRun.engines, theRun.missing, theRun.failure = engines, append(theRun.missing, missing...), err
	})
	if theRun.failure != nil {
		t.Fatalf("start engines: %v", theRun.failure)
	}
	for _, e := range theRun.engines {
		t.Run(e.name(), func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// startEngines starts those that the environment asks for. One that is started stands in the result, also when
// another one fails.
func startEngines(ctx context.Context) (engines []engine, missing []string, err error) {
	engines, missing, err = startPostgresEngines(ctx)
	if err != nil {
		return engines, missing, err
	}
	more, absent, err := startSQLServerEngines(ctx)
	return append(engines, more...), append(missing, absent...), err
}

// behave runs one behaviour on a database of its own, or counts it as not run where the engine lacks what
// it needs.
func behave(t *testing.T, e engine, b behaviour) {
	t.Helper()
	for _, need := range b.needs {
		if !e.can(need) {
			theRun.count(e, func(c *tally) { c.notRun[need]++ })
			t.Skipf("not run: it needs %s", need)
		}
	}
	t.Cleanup(func() {
		theRun.count(e, func(c *tally) {
			c.run++
			if t.Failed() {
				c.failed++
			}
		})
	})
	b.holds(newDatabase(t, e))
}

// leavesOut skips a test for want of something, and says so in the summary, which a passing run would not.
func (r *testRun) leavesOut(t *testing.T, what string) {
	t.Helper()
	r.mu.Lock()
	if line := what + ": not run"; !slices.Contains(r.missing, line) {
		r.missing = append(r.missing, line)
	}
	r.mu.Unlock()
	t.Skip("not run: " + what)
}

func (r *testRun) count(e engine, change func(*tally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tally == nil {
		r.tally = map[string]*tally{}
	}
	if r.tally[e.name()] == nil {
		r.tally[e.name()] = &tally{notRun: map[capability]int{}}
	}
	change(r.tally[e.name()])
}

// end stops the engines and says what was run.
func (r *testRun) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var failure error
	for _, e := range r.engines {
		if err := e.stop(ctx); err != nil && failure == nil {
			failure = fmt.Errorf("stop %s: %w", e.name(), err)
		}
	}
	summary := r.summary()
	fmt.Print(summary)
	if file := os.Getenv("FENCECTL_TEST_SUMMARY"); file != "" && summary != "" {
		if err := os.WriteFile(file, []byte(summary), 0o644); err != nil && failure == nil {
			failure = fmt.Errorf("write summary: %w", err)
		}
	}
	return failure
}

// summary says which engines and versions the run really ran on, and what it left out.
func (r *testRun) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, e := range r.engines {
		counted := r.tally[e.name()]
		if counted == nil {
			fmt.Fprintf(&b, "integration: %s: started\n", e.name())
			continue
		}
		fmt.Fprintf(&b, "integration: %s: %d behaviours run, %d failed\n", e.name(), counted.run, counted.failed)
		var left []string
		for need, n := range counted.notRun {
			left = append(left, fmt.Sprintf("integration: %s: %d behaviours not run: they need %s\n", e.name(), n, need))
		}
		slices.Sort(left)
		b.WriteString(strings.Join(left, ""))
	}
	for _, one := range r.missing {
		fmt.Fprintf(&b, "integration: %s\n", one)
	}
	return b.String()
}
