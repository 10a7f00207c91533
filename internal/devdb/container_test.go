package devdb

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeDocker writes down how it was called and fails when told to start.
const fakeDocker = `#!/bin/sh
echo "$1 password=${POSTGRES_PASSWORD:+set} $*" >>"$0.calls"
case "$1" in
start) echo "image is for another machine" >&2; exit 1 ;;
esac
`

func TestContainerThatDoesNotStartIsRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the stand-in for docker is a shell script")
	}
	docker := filepath.Join(t.TempDir(), "docker")
	require.NoError(t, os.WriteFile(docker, []byte(fakeDocker), 0o755))
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)

	f := &finder{docker: docker}
	_, err := f.start(t.Context(), Options{Version: "16", Settings: map[string]string{"fsync": "off"}})
	require.ErrorContains(t, err, "run docker start: exit status 1\nimage is for another machine")
	left, globErr := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, globErr)
	require.Empty(t, left)

	content, err := os.ReadFile(docker + ".calls")
	require.NoError(t, err)
	calls := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, calls, 4)
	require.Contains(t, calls[0], "info")
	require.Regexp(t, `^create password=set .* --publish 127\.0\.0\.1:\d+:5432 .*--env POSTGRES_PASSWORD .*postgres:16-alpine postgres -c fsync=off$`, calls[1])
	require.Contains(t, calls[2], "start fencectl-pg-")
	name := calls[2][strings.LastIndex(calls[2], " ")+1:]
	require.True(t, strings.HasSuffix(calls[3], "rm --force --volumes "+name), calls[3])
}

func TestSweepRemovesTheContainerOfALeftFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the stand-in for docker is a shell script")
	}
	bin, dir := t.TempDir(), t.TempDir()
	docker := filepath.Join(bin, "docker")
	require.NoError(t, os.WriteFile(docker, []byte(fakeDocker), 0o755))
	t.Setenv("TMPDIR", dir)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, file := range map[string]string{"container": dockerFile, "process": "other"} {
		left := filepath.Join(dir, folderPrefix+"1-"+name)
		require.NoError(t, os.Mkdir(left, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(left, ownerFile), []byte("1\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(left, file), nil, 0o600))
	}

	sweep()
	content, err := os.ReadFile(docker + ".calls")
	require.NoError(t, err)
	require.Equal(t, "rm password= rm --force --volumes fencectl-pg-1-container\n", string(content))
}
