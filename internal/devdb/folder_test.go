package devdb

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSweepRemovesOnlyWhatItsOwnerLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // Windows
	makeFolder := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Join(path, "data"), 0o700))
		return path
	}
	owner := func(path, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(path, ownerFile), []byte(content), 0o600))
	}

	left := makeFolder("fencectl-pg-1-left")
	owner(left, "1\n")
	inUse, err := newFolder(nil)
	require.NoError(t, err)
	justMade := makeFolder("fencectl-pg-1-made")
	owner(justMade, "")
	unmarked := makeFolder("fencectl-pg-1-unmarked")
	other := makeFolder("other")
	owner(other, "1\n")
	link := filepath.Join(dir, "fencectl-pg-1-link")
	require.NoError(t, os.Symlink(other, link))

	sweep()
	require.NoDirExists(t, left)
	for _, kept := range []string{inUse.path, justMade, unmarked, other} {
		require.DirExists(t, kept)
	}
	_, err = os.Lstat(link)
	require.NoError(t, err)
	require.NoError(t, inUse.remove())
	require.NoDirExists(t, inUse.path)
}

func TestSweepDoesNotEndAProcessOfAnotherFolder(t *testing.T) {
	if runningOnWindows {
		t.Skip("SKIPPED: nothing is ended on Windows")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left := filepath.Join(dir, "fencectl-pg-1-left")
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, ownerFile), []byte("1\n"), 0o600))
	stranger := startSleeper(t, "") // its number was that of the server
	require.NoError(t, (&folder{path: left}).notePid(stranger.pid))
	sweep()
	require.NoDirExists(t, left)
	require.False(t, stranger.ended())

	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, ownerFile), []byte("1\n"), 0o600))
	server := startSleeper(t, left+"/data")
	require.NoError(t, (&folder{path: left}).notePid(server.pid))
	sweep()
	require.NoDirExists(t, left)
	<-server.done
}

const runningOnWindows = runtime.GOOS == "windows"

// startSleeper starts a process that has argument on its command line.
func startSleeper(t *testing.T, argument string) *process {
	t.Helper()
	sleeper, err := launch(exec.Command("sh", "-c", "sleep 60; :", "sleeper", argument))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sleeper.kill()) })
	return sleeper
}
