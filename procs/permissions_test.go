package procs_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/procs"
)

// permissionTable shows the matrix as docs/permissions.md does: a row for each routine that any role may call
// and each view, a column for each role.
func permissionTable() string {
	roles := procs.Roles()
	var b strings.Builder
	b.WriteString("| |")
	for _, role := range roles {
		fmt.Fprintf(&b, " `%s` |", role.Name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" :-: |", len(roles)) + "\n")
	row := func(name, right string, has func(procs.Role) bool) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, role := range roles {
			if has(role) {
				fmt.Fprintf(&b, " %s |", right)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	for _, routine := range procs.Postgres(true) {
		if !routine.Internal {
			row("`"+routine.Name+"()`", "execute", func(r procs.Role) bool { return slices.Contains(r.Routines, routine.Name) })
		}
	}
	for _, view := range views(roles) {
		row("`"+view+"`", "read", func(r procs.Role) bool { return slices.Contains(r.Views, view) })
	}
	row("every other routine, every table", "", func(procs.Role) bool { return false })
	return b.String()
}

func views(roles []procs.Role) []string {
	var names []string
	for _, role := range roles {
		for _, view := range role.Views {
			if !slices.Contains(names, view) {
				names = append(names, view)
			}
		}
	}
	return names
}

func TestThePermissionsPageShowsTheMatrix(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/permissions.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "<!-- permissions -->\n")
	require.True(t, found, "the marker before the table")
	table, _, found := strings.Cut(rest, "<!-- end of permissions -->")
	require.True(t, found, "the marker after the table")
	assert.Equal(t, strings.TrimSpace(permissionTable()), strings.TrimSpace(table), "docs/permissions.md and procs.Roles() differ")
}

func TestNoRoleMayCallAnInternalRoutine(t *testing.T) {
	t.Parallel()
	public := map[string]bool{}
	for _, routine := range procs.Postgres(true) {
		public[routine.Name] = !routine.Internal
	}
	for _, role := range procs.Roles() {
		for _, name := range role.Routines {
			assert.True(t, public[name], "%s: %s", role.Name, name)
		}
	}
}
