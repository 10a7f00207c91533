package cli

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dsnNamed is a database that refuses connections and whose name tells where it was found.
func dsnNamed(database string) string { return nowhere + " dbname=" + database }

// usedDatabase tells which database a command tried to reach, and where it had found it.
func usedDatabase(t *testing.T, sh shell, args ...string) string {
	t.Helper()
	got := sh.run(t, append([]string{"about", "-v"}, args...)...)
	require.Equal(t, 5, got.code, got.stderr)
	line, _, _ := strings.Cut(got.stderr, "\n")
	return strings.TrimPrefix(line, "fencectl: database ")
}

func TestTheDatabaseComesFromTheFirstPlaceThatNamesOne(t *testing.T) {
	t.Chdir(t.TempDir())
	file := writeFile(t, dsnNamed("dsnfile")+"\n")
	config := writeFile(t, "dsn: "+dsnNamed("config"))
	require.NoError(t, os.WriteFile("fencectl.yaml", []byte("dsn: "+dsnNamed("workdir")), 0o600))
	sh := shell{env: []string{"FENCECTL_DSN=" + dsnNamed("environment"), "PGHOST=127.0.0.1"}}
	t.Setenv("PGHOST", "127.0.0.1")
	t.Setenv("PGPORT", "1")
	t.Setenv("PGDATABASE", "libpq")
	t.Setenv("PGUSER", "u")

	assert.Equal(t, "flag as u on 127.0.0.1:1 (from --dsn)", usedDatabase(t, sh, "--dsn", dsnNamed("flag"), "--dsn-file", file, "--config", config))
	assert.Equal(t, "dsnfile as u on 127.0.0.1:1 (from --dsn-file)", usedDatabase(t, sh, "--dsn-file", file, "--config", config))
	assert.Equal(t, "environment as u on 127.0.0.1:1 (from FENCECTL_DSN)", usedDatabase(t, sh))
	assert.Equal(t, "config as u on 127.0.0.1:1 (from "+config+")", usedDatabase(t, sh, "--config", config), "a flag comes before the environment")
	sh.env = sh.env[1:]
	assert.Equal(t, "config as u on 127.0.0.1:1 (from "+config+")", usedDatabase(t, sh, "--config", config))
	ignored := sh.run(t, "about", "-v").stderr
	assert.Contains(t, ignored, "fencectl.yaml is not used: PGHOST is set")
	assert.Contains(t, ignored, "libpq as u on 127.0.0.1:1 (from PGHOST)", "the environment comes before a file")
	sh.env = []string{"PGPASSFILE=/does/not/exist", "PGUSER=u"}
	assert.Equal(t, "workdir as u on 127.0.0.1:1 (from fencectl.yaml)", usedDatabase(t, sh), "what names no server completes the file")
	require.NoError(t, os.Remove("fencectl.yaml"))
	assert.Equal(t, "libpq as u on 127.0.0.1:1 (from PGUSER)", usedDatabase(t, sh))

	sh.env = nil
	got := sh.run(t, "about")
	assert.Equal(t, 2, got.code)
	for _, way := range []string{"--dsn", "--dsn-file", "FENCECTL_DSN", "fencectl.yaml", "PGHOST", "PGSERVICE"} {
		assert.Contains(t, got.stderr, way)
	}

	sh.stdin = strings.NewReader(dsnNamed("stdin"))
	assert.Contains(t, usedDatabase(t, sh, "--dsn-file", "-"), "stdin as u")
}

func TestAServiceOrAPasswordFileIsEnough(t *testing.T) {
	dsn, err := url.Parse(newDatabase(t))
	require.NoError(t, err)
	password, _ := dsn.User.Password()
	dir := t.TempDir()
	passfile, services := filepath.Join(dir, "pgpass"), filepath.Join(dir, "services")
	require.NoError(t, os.WriteFile(passfile, []byte("127.0.0.1:"+dsn.Port()+":*:"+dsn.User.Username()+":"+password), 0o600))
	require.NoError(t, os.WriteFile(services, []byte("[fence]\nhost=127.0.0.1\nport="+dsn.Port()+"\nuser="+dsn.User.Username()+
		"\ndbname="+strings.TrimPrefix(dsn.Path, "/")+"\n"), 0o600))
	for name, value := range map[string]string{"PGSERVICEFILE": services, "PGSERVICE": "fence", "PGPASSFILE": passfile} {
		t.Setenv(name, value)
	}
	got := shell{env: os.Environ()}.run(t, "about", "-v")
	assert.Equal(t, 0, got.code, got.stderr)
	assert.NotContains(t, got.stdout+got.stderr, password)

	t.Setenv("PGSERVICE", "elsewhere")
	got = shell{env: os.Environ()}.run(t, "about")
	assert.Equal(t, 2, got.code, "a service that does not exist")
}

func TestTheConfigurationExpandsTheEnvironment(t *testing.T) {
	t.Parallel()
	a := &app{env: environment([]string{"NAME=orders", "EMPTY=", "ODD=a=b ${NAME}"})}
	for text, want := range map[string]string{
		"dbname=${NAME}":        "dbname=orders",
		"${NAME}${NAME}":        "ordersorders",
		"password=$NAME$":       "password=$NAME$",
		"password=$${NAME}":     "password=${NAME}",
		"password='${EMPTY}'":   "password=''",
		"${ODD}":                "a=b ${NAME}",
		"host=a,b dbname=plain": "host=a,b dbname=plain",
	} {
		got, err := a.expand(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := a.expand("dbname=${NAME} password=${SECRET}")
	assert.EqualError(t, err, "the environment variable SECRET is not set")
}

func TestAWrongConfigurationIsAUsageErrorThatShowsNoSecret(t *testing.T) {
	t.Parallel()
	for content, message := range map[string]string{
		"dns: postgres://u:geheim@h/d":                           `line 1: unknown key "dns"`,
		"dsn: a\ntimeout: 3":                                     `line 2: unknown key "timeout"`,
		"dsn: a\ndsn: b":                                         "twice",
		"dsn:\n  - postgres://u:geheim@h/d":                      "must be a text",
		"dsn:":                                                   "must be a text",
		"postgres://u:geheim@h/d":                                `"key: value" lines`,
		"dsn: 'postgres://u:geheim@h/d":                          "not valid YAML",
		"dsn: postgres://u:${NOT_SET}@h/geheim":                  "environment variable NOT_SET is not set",
		"dsn: *geheim":                                           "not valid YAML",
		"dsn: postgres://u:geheim@h:port/d":                      "cannot be used",
		"dsn: sqlserver://u:geheim@h:port":                       "cannot be used",
		"dsn: mssql://u:geheim@h?fedauth=ActiveDirectoryDefault": "encrypt=true",
	} {
		got := shell{}.run(t, "about", "--config", writeFile(t, content))
		assert.Equal(t, 2, got.code, content)
		assert.Contains(t, got.stderr, message, content)
		assert.NotContains(t, got.stderr, "geheim")
	}
	assert.Equal(t, 2, shell{}.run(t, "about", "--config", "/does/not/exist").code)
	assert.Contains(t, shell{}.run(t, "about", "--dsn-file", writeFile(t, " \n")).stderr, "is empty")
	assert.Contains(t, on(nowhere).run(t, "about", "--dsn", "").stderr, "--dsn is empty", "not another database instead")
}
