package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/procs"
)

// envMutation is the number of the mutation, from 0, that a run installs. It is for the children of
// TestEveryMutationIsNoticed, and for a person who wants to see what else goes red.
const envMutation = "FENCECTL_TEST_MUTATION"

// mutate replaces a routine by the mutated one that the environment asks for, if it does.
func mutate(ctx context.Context, dsn string) error {
	number := os.Getenv(envMutation)
	if number == "" {
		return nil
	}
	i, err := strconv.Atoi(number)
	all := mutations()
	if err != nil || i < 0 || i >= len(all) {
		return fmt.Errorf("%s: there is no mutation %q", envMutation, number)
	}
	source, err := all[i].source()
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, source); err != nil {
		return fmt.Errorf("install the mutation %q: %w", all[i].breaks, err)
	}
	return nil
}

// source returns the mutated routine. A file that no longer has the place is an error: the mutation would
// change nothing, and prove nothing.
func (m mutation) source() (string, error) {
	for _, routine := range procs.Postgres(true) {
		if path.Base(routine.File) != m.file+".sql" {
			continue
		}
		source := routine.Source()
		if found, want := strings.Count(source, m.old), max(1, m.times); found != want {
			return "", fmt.Errorf("mutate %s (%s): %q is there %d times, not %d", m.file, m.breaks, m.old, found, want)
		}
		return strings.ReplaceAll(source, m.old, m.new), nil
	}
	return "", fmt.Errorf("mutate %s (%s): there is no such routine", m.file, m.breaks)
}

func TestEveryMutationHasItsPlace(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		_, err := m.source()
		assert.NoError(t, err)
		assert.NotEqual(t, m.old, m.new, m.breaks)
		assert.NotEmpty(t, m.killers, "%s: %s", m.rule, m.breaks)
	}
}

// TestEveryMutationIsNoticed takes the rules out of the routines, one at a time, and demands that the tests
// that are there for the rule fail: a suite that stays green then would prove nothing. Each mutation is tried
// by another process of this test binary, on the server that is already running.
func TestEveryMutationIsNoticed(t *testing.T) {
	t.Parallel()
	if os.Getenv(envMutation) != "" {
		t.Skip("not run: this run is on a mutation itself")
	}
	eachEngine(t, func(t *testing.T, e engine) {
		if e != theRun.engines[0] {
			t.Skip("not run: once is enough, on " + theRun.engines[0].name())
		}
		tried := map[string]bool{}
		for i, m := range mutations() {
			if testing.Short() && tried[m.rule] {
				continue // one for each rule
			}
			tried[m.rule] = true
			t.Run(m.rule+": "+m.breaks, func(t *testing.T) {
				t.Parallel()
				output := m.try(t, plain(t, e), i)
				for _, killer := range m.killers {
					failed := regexp.MustCompile(`(?m)^ *--- FAIL: ` + killedLine(killer) + ` \(`).MatchString(output)
					assert.True(t, failed, "%s does not fail:\n%s", killer, output[max(0, len(output)-3000):])
				}
			})
		}
	})
}

// try runs the killers on the mutated routine and returns what they print.
func (m mutation) try(t *testing.T, e *postgres, number int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.timeout=50s", "-test.run="+m.pattern())
	command.Env = append(os.Environ(), envMutation+"="+strconv.Itoa(number), "FENCECTL_TEST_SUMMARY=",
		"FENCECTL_TEST_PG_DSN="+e.dsn("postgres"))
	output, err := command.CombinedOutput()
	require.Error(t, err, "no test fails")
	return string(output)
}

// pattern selects the killers, as -test.run takes it.
func (m mutation) pattern() string {
	var tests, chapters, behaviours []string
	for _, killer := range m.killers {
		chapter, behaviour, found := strings.Cut(killer, "/")
		if !found {
			tests = append(tests, killer)
			continue
		}
		tests = append(tests, "TestConformance")
		chapters = append(chapters, testName(chapter))
		behaviours = append(behaviours, testName(behaviour))
	}
	any := func(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
	if len(behaviours) == 0 {
		return any(tests)
	}
	return strings.Join([]string{any(tests), "", any(chapters), any(behaviours)}, "/")
}

// testName is how package testing writes a name, as a regular expression.
func testName(name string) string {
	return regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_"))
}

// killedLine is the name of a killer in the output, as a regular expression.
func killedLine(killer string) string {
	chapter, behaviour, found := strings.Cut(killer, "/")
	if !found {
		return killer
	}
	return "TestConformance/[^/]+/" + testName(chapter) + "/" + testName(behaviour)
}

// mutationTable is the part of docs/testing.md that says which test kills which mutation.
func mutationTable() string {
	var b strings.Builder
	b.WriteString("| # | rule | without it | in | red |\n| --: | --- | --- | --- | --- |\n")
	for i, m := range mutations() {
		fmt.Fprintf(&b, "| %d | %s | %s | `%s` | %s |\n", i, m.rule, m.breaks, m.file, strings.Join(m.killers, "; "))
	}
	return b.String()
}

func TestTheTestingPageListsTheMutations(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "<!-- mutations -->\n")
	require.True(t, found, "the marker before the table")
	table, _, found := strings.Cut(rest, "<!-- end of mutations -->")
	require.True(t, found, "the marker after the table")
	listed, want := strings.Split(strings.TrimSpace(table), "\n"), strings.Split(strings.TrimSpace(mutationTable()), "\n")
	for i := range min(len(listed), len(want)) {
		require.Equal(t, want[i], listed[i], "docs/testing.md and mutations() differ")
	}
	require.Len(t, listed, len(want), "docs/testing.md and mutations() differ")
}

// A killer that no longer exists would be a mutation that nobody notices.
func TestEveryKillerExists(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, chapter := range contract() {
		for _, b := range chapter.behaviours {
			known[chapter.name+"/"+b.name] = true
		}
	}
	for _, m := range mutations() {
		for _, killer := range m.killers {
			if strings.Contains(killer, "/") {
				assert.True(t, known[killer], "%s: %s: no behaviour %q", m.rule, m.breaks, killer)
			}
		}
	}
}
