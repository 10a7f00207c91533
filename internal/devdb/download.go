package devdb

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// defaultMajor is what is downloaded, or run in a container, when the caller
// asks for no version.
const defaultMajor = "17"

// cacheFolder is where downloaded binaries are kept. Root's home is closed to
// the account that runs root's servers.
func cacheFolder() string {
	if runtime.GOOS != "windows" && os.Geteuid() == 0 {
		return "/var/cache/fencectl"
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "fencectl")
}

func (f *finder) cachedAt(major string) string {
	if major == "" {
		major = defaultMajor
	}
	return filepath.Join(f.cache, "postgresql-"+major)
}

// cached returns what an earlier start downloaded, if anything.
func (f *finder) cached(ctx context.Context, major string) []Installation {
	if f.cache == "" {
		return nil
	}
	one, err := f.probe(ctx, filepath.Join(f.cachedAt(major), "bin"))
	if err != nil {
		return nil
	}
	return []Installation{one}
}

// fetch downloads the binaries of a major version into the cache.
func (f *finder) fetch(ctx context.Context, major string) (Installation, error) {
	if f.cache == "" {
		return Installation{}, fmt.Errorf("download postgresql: no cache folder")
	}
	target := f.cachedAt(major)
	if major == "" {
		major = defaultMajor
	}
	if err := os.MkdirAll(f.cache, 0o755); err != nil {
		return Installation{}, fmt.Errorf("download postgresql: %w", err)
	}
	if err := f.download(ctx, major, target); err != nil {
		return Installation{}, fmt.Errorf("download postgresql %s: %w", major, err)
	}
	return f.probe(ctx, filepath.Join(target, "bin"))
}

// downloadBinaries puts the binaries into a folder beside target and renames it
// when they are complete. When ctx ends first the download goes on unattended,
// because the library cannot be told to stop; what it brings is thrown away.
func downloadBinaries(ctx context.Context, major, target string) error {
	version, known := map[string]embeddedpostgres.PostgresVersion{
		"14": embeddedpostgres.V14, "15": embeddedpostgres.V15, "16": embeddedpostgres.V16,
		"17": embeddedpostgres.V17, "18": embeddedpostgres.V18,
	}[major]
	if !known {
		return fmt.Errorf("no download is known for version %q", major)
	}
	work, err := os.MkdirTemp(filepath.Dir(target), "download-")
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer os.RemoveAll(work)
		done <- fetchOnly(ctx, version, work, target)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetchOnly makes the library fetch and unpack. It has no call for that alone,
// only one that also starts a server (and cannot as root): an encoding that no
// PostgreSQL knows makes it give up in between.
func fetchOnly(ctx context.Context, version embeddedpostgres.PostgresVersion, work, target string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	binaries := filepath.Join(work, "binaries")
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		Encoding("fetch-only").
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(binaries).
		Logger(io.Discard)).Start()
	if err != nil && !strings.HasPrefix(err.Error(), "unable to init database") {
		return err // before or while unpacking
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return os.Rename(binaries, target)
}
