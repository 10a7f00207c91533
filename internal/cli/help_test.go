package cli

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheExitCodesAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	got := shell{}.run(t, "help", "exit-codes")
	assert.Equal(t, 0, got.code)
	for code, word := range map[int]string{
		0: "done", 1: "error", 2: "usage", 3: "difference found", 4: "lock time-out", 5: "cannot connect",
		6: "outcome unknown", 10: "refused by the fence", 130: "interrupted",
	} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^ +%d  .*%s`, code, word), got.stdout)
	}
	assert.Regexp(t, `(?m)^ +5  .*not permitted`, got.stdout)
	assert.Regexp(t, `(?m)^ +3  .*unfit`, got.stdout)
}

func TestEveryCommandHasAHelpTextWithExamples(t *testing.T) {
	t.Parallel()
	for name, cmd := range everyCommand(t) {
		if strings.HasPrefix(name, "completion") || name == "help" || cmd.Hidden {
			continue
		}
		got := shell{}.run(t, append(strings.Fields(name), "--help")...)
		assert.Equal(t, 0, got.code, name)
		assert.Empty(t, got.stderr, name)
		assert.Contains(t, got.stdout, "Examples:\n  ", name)
		assert.Contains(t, got.stdout, "--timeout", name)
		assert.Contains(t, got.stdout, "--output", name)
		assert.NotEmpty(t, cmd.Long, name)
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), 120, line)
		}
		assert.Equal(t, got.stdout, shell{}.run(t, append([]string{"help"}, strings.Fields(name)...)...).stdout, name)
	}
}

func TestExamplesAreCorrectCommandLines(t *testing.T) {
	t.Parallel()
	for name, cmd := range everyCommand(t) {
		for line := range strings.Lines(cmd.Example) {
			_, call, ok := strings.Cut(line, "fencectl ")
			if !ok || strings.Contains(line, "\\\n") || strings.Contains(line, "$(") {
				continue
			}
			call, _, _ = strings.Cut(call, "|")
			call, _, _ = strings.Cut(call, ">")
			words := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(call, "'", ""), `"`, ""))
			found, rest, err := newRoot(&app{}).Find(words)
			if assert.NoError(t, err, line) {
				assert.NotEqual(t, "fencectl", found.Name(), line)
				for _, word := range rest {
					if flag, ok := strings.CutPrefix(word, "--"); ok {
						flag, _, _ = strings.Cut(flag, "=")
						assert.NotNil(t, found.Flag(flag), "%s: %s", name, line)
					}
				}
			}
		}
	}
}

func TestWordsAreCompleted(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"leases --state ":       "live expired released seized unused",
		"leases -o ":            "table json jsonl",
		"publish r --policy ":   "until_superseded unexpired",
		"migrate --roles ":      "create existing",
		"migrate up --roles ":   "create existing",
		"rejections --by ":      "reason",
		"check r --policy unex": "unexpired",
	} {
		got := shell{}.run(t, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		assert.Equal(t, 0, got.code)
		words := strings.Fields(got.stdout)
		for _, word := range strings.Fields(want) {
			assert.Contains(t, words, word, args)
		}
	}
	for _, sh := range []string{"bash", "zsh", "fish", "powershell"} {
		got := shell{}.run(t, "completion", sh)
		assert.Equal(t, 0, got.code)
		assert.Contains(t, got.stdout, "fencectl")
	}
}

func TestTheProgramLinksNoContainerLibrary(t *testing.T) {
	t.Parallel()
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../cmd/fencectl").Output()
	require.NoError(t, err)
	assert.Contains(t, string(listed), "github.com/spf13/cobra")
	assert.NotContains(t, string(listed), "testcontainers")
	assert.NotContains(t, string(listed), "github.com/docker")
}
