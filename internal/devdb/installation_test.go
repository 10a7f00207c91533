package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstallationOnPathIsPreferredThenTheNewest(t *testing.T) {
	t.Parallel()
	system := readableFolder(t)
	onPath := fakeInstallation(t, "15.3 (Debian 15.3-1)")
	for _, version := range []string{"14.9", "16.10", "16.9"} {
		installInto(t, filepath.Join(system, version, "bin"), version)
	}
	named := []Installation{fakeInstallation(t, "17.4"), fakeInstallation(t, "18beta1")}
	link := filepath.Join(readableFolder(t), "path")
	require.NoError(t, os.Symlink(onPath.BinDir, link))
	f := &finder{
		path:     strings.Join([]string{"", t.TempDir(), link, onPath.BinDir}, string(os.PathListSeparator)),
		patterns: []string{filepath.Join(system, "*", "bin")},
		named:    filepath.Dir(named[0].BinDir) + string(os.PathListSeparator) + filepath.Dir(named[1].BinDir),
	}

	found, err := f.installed(t.Context())
	require.NoError(t, err)
	var versions []string
	for _, one := range found {
		versions = append(versions, one.Version)
	}
	require.Equal(t, []string{"15.3", "16.10", "16.9", "14.9", "18beta1", "17.4"}, versions)

	one, err := f.find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "15.3", one.Version)
	one, err = f.find(t.Context(), "18")
	require.NoError(t, err)
	require.Equal(t, named[1].BinDir, one.BinDir)
	_, err = f.find(t.Context(), "13")
	require.ErrorIs(t, err, ErrNoPostgres)
}

func TestNamedFolderWithoutAServerIsAnError(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	good := fakeInstallation(t, "17.4")
	f := &finder{named: empty + string(os.PathListSeparator) + filepath.Dir(good.BinDir)}
	found, err := f.installed(t.Context())
	require.ErrorContains(t, err, "FENCECTL_PG_BINARIES names "+empty)
	require.Len(t, found, 1, "the others are found all the same")
}

func TestMissingServerIsExplained(t *testing.T) {
	t.Parallel()
	f := &finder{
		path: fakeInstallation(t, "15.3").BinDir, cache: t.TempDir(),
		download: func(context.Context, string, string) error { return errors.New("no way to the mirror") },
	}
	_, err := f.start(t.Context(), Options{Version: "16"})
	require.ErrorIs(t, err, ErrNoPostgres)
	for _, part := range []string{
		"find postgresql 16", "found 15.3", "no way to the mirror", "docker", "--dsn", BinariesVariable,
	} {
		require.ErrorContains(t, err, part)
	}
	if runtime.GOOS == "linux" {
		require.ErrorContains(t, err, "apt install postgresql-16")
	}
}

func TestLocalOnlyNeitherDownloadsNorAsksDocker(t *testing.T) {
	t.Parallel()
	f := &finder{
		cache: t.TempDir(), docker: filepath.Join(t.TempDir(), "missing"),
		download: func(context.Context, string, string) error { panic("must not download") },
	}
	_, err := f.start(t.Context(), Options{LocalOnly: true})
	require.ErrorIs(t, err, ErrNoPostgres)
	require.NotContains(t, err.Error(), "ask docker")
}

func TestDownloadIsKeptForTheNextStart(t *testing.T) {
	t.Parallel()
	f := &finder{cache: readableFolder(t), account: unprivileged()}
	f.download = func(_ context.Context, major, target string) error {
		installInto(t, filepath.Join(target, "bin"), major+".1")
		return nil
	}
	one, err := f.fetch(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, defaultMajor+".1", one.Version)
	again, err := f.find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, one, again)
	_, err = f.find(t.Context(), "14")
	require.ErrorIs(t, err, ErrNoPostgres)
}

// fakeInstallation is a folder whose postgres can only tell its version.
func fakeInstallation(t *testing.T, version string) Installation {
	t.Helper()
	bin := filepath.Join(readableFolder(t), "bin")
	installInto(t, bin, version)
	return Installation{Version: version, BinDir: bin}
}

func installInto(t *testing.T, bin, version string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the stand-in for postgres is a shell script")
	}
	require.NoError(t, os.MkdirAll(bin, 0o755))
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "postgres"), []byte(script), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "initdb"), nil, 0o755))
}

// readableFolder is a temporary folder that the account of root's servers can
// enter, which it cannot with t.TempDir.
func readableFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devdb-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	return dir
}
