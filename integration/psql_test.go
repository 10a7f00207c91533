package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nameClass is a name as one of the clients of a database may send it.
type nameClass struct {
	what  string
	name  string
	valid bool
}

// namesForClients are names that a client program could mangle: by its quoting, its encoding, or its own idea
// of length.
func namesForClients() []nameClass {
	emoji := "😀" // two UTF-16 code units
	return []nameClass{
		{"plain", "report:42", true},
		{"quotes and backslashes", `a'b"c\d\'e`, true},
		{"what psql could take for a variable", `:name :'name' :"name" ::text`, true},
		{"dollars and semicolons", `$1 $$x$$; DROP SCHEMA fence; --`, true},
		{"percent and braces", "%s {} ${HOME} `id`", true},
		{"letters of other scripts", "Größe 報告 отчёт تقرير", true},
		{"a combining mark is not its letter", "cafe\u0301", true},
		{"emoji with joiners", "👩\u200d💻 🏳\ufe0f\u200d🌈", true},
		{"white space inside", "a b\u00a0c\u3000d", true},
		{"a zero-width space at the end is no white space", "a\u200b", true},
		{"255 units", strings.Repeat("x", 255), true},
		{"256 units", strings.Repeat("x", 256), false},
		{"255 units with emoji", strings.Repeat(emoji, 127) + "x", true},
		{"256 units with emoji", strings.Repeat(emoji, 128), false},
		{"255 letters of three bytes", strings.Repeat("報", 255), true},
		{"256 letters of three bytes", strings.Repeat("報", 256), false},
		{"empty", "", false},
		{"tab", "a\tb", false},
		{"line break", "a\nb", false},
		{"delete", "a\u007fb", false},
		{"next line, a C1 control", "a\u0085b", false},
		{"blank in front", " a", false},
		{"blank at the end", "a ", false},
		{"no-break space at the end", "a\u00a0", false},
		{"ideographic space in front", "\u3000a", false},
	}
}

// psql runs a script in the psql of this machine, with the name in the variable n, and returns its output.
func psql(ctx context.Context, program, dsn, name, script string) (string, error) {
	command := exec.CommandContext(ctx, program,
		"--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose",
		"--set=n="+name, "--file=-", dsn)
	command.Env = append(os.Environ(), "PGCLIENTENCODING=UTF8", "LC_ALL=C.UTF-8")
	command.Stdin = strings.NewReader(script)
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestNamesArriveThroughPsqlAsTheyAre(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("psql")
	if err != nil {
		theRun.leavesOut(t, "names through psql: there is none on the path")
	}
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		db := create()
		dsn := db.e.(*postgres).dsn(db.backend.(*postgresDatabase).database)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, c := range namesForClients() {
			// Acquired by its name, and read back: as it was stored, and by a look-up with the same name.
			output, err := psql(ctx, program, dsn, c.name, `
				SELECT json_build_object('outcome', a.outcome, 'holder', a.holder) FROM fence.acquire(:'n', :'n', 60000) a;
				SELECT to_json(l.resource) FROM fence.lease l WHERE l.resource = :'n' AND l.owner = :'n';`)
			if !c.valid {
				require.Error(t, err, c.what)
				assert.Contains(t, output, "FN001: invalid argument resource", c.what)
				continue
			}
			require.NoError(t, err, "%s: %s", c.what, output)
			lines := strings.Split(strings.TrimSpace(output), "\n")
			require.Len(t, lines, 2, "%s: %s", c.what, output)
			var got struct{ Outcome, Holder string }
			require.NoError(t, json.Unmarshal([]byte(lines[0]), &got), lines[0])
			assert.Equal(t, struct{ Outcome, Holder string }{"acquired", c.name}, got, c.what)
			var stored string
			require.NoError(t, json.Unmarshal([]byte(lines[1]), &stored), lines[1])
			assert.Equal(t, c.name, stored, c.what)
			assert.True(t, db.known(c.name), "the same name from another client: %s", c.what)
		}
	})
}
