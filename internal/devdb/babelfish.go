package devdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"
)

// BabelfishVariable is the environment variable that names the folder of a Babelfish for PostgreSQL: a
// PostgreSQL server that also speaks TDS and T-SQL. Unset, it is looked for in /opt/babelfish.
const BabelfishVariable = "BABELFISH_HOME"

const (
	defaultBabelfish = "/opt/babelfish"
	babelfishLogin   = "fencectl" // the owner of every T-SQL database
	babelfishHome    = "babelfish_db"
)

// Babelfish is a throwaway Babelfish server: T-SQL where no SQL Server can run. Its methods may be called from
// several goroutines.
type Babelfish struct {
	server    *Server
	tdsPort   int
	loginWord string
	release   string
}

// StartBabelfish starts a server and returns when it answers in T-SQL. What [StartPostgres] promises holds for
// this server, too. The caller stops it with [Babelfish.Stop].
//
// It returns [ErrNoBabelfish] when there is none on this machine. Of the options only Settings are used.
func StartBabelfish(ctx context.Context, options Options) (*Babelfish, error) {
	sweep()
	b, err := startBabelfish(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start babelfish: %w", err)
	}
	return b, nil
}

// InstalledBabelfish returns the folder of the Babelfish on this machine, or [ErrNoBabelfish].
func InstalledBabelfish() (string, error) {
	home := os.Getenv(BabelfishVariable)
	if home == "" {
		home = defaultBabelfish
	}
	if _, err := os.Stat(filepath.Join(home, "share", "postgresql", "extension", "babelfishpg_tds.control")); err != nil {
		return "", fmt.Errorf("look for %s (%s): %w", home, BabelfishVariable, ErrNoBabelfish)
	}
	return home, nil
}

func startBabelfish(ctx context.Context, options Options) (*Babelfish, error) {
	home, err := InstalledBabelfish()
	if err != nil {
		return nil, err
	}
	if options.Version != "" || options.Port != 0 {
		return nil, errors.New("a version or a port cannot be chosen")
	}
	finder := newFinder()
	found, err := finder.probe(ctx, filepath.Join(home, "bin"))
	if err != nil {
		return nil, err
	}
	b := &Babelfish{loginWord: newPassword()}
	if err := b.startOnPort(ctx, options, found, finder.account); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.prepare(ctx, finder.account); err != nil {
		return nil, errors.Join(err, b.Stop(ctx))
	}
	return b, nil
}

// startOnPort starts the server on a free port for TDS, and on another one when some other program was faster.
func (b *Babelfish) startOnPort(ctx context.Context, options Options, found Installation, account *account) error {
	const attempts = 3
	callers := options.Settings
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		b.tdsPort = port
		options.Settings = b.settings(callers)
		if err := options.validate(); err != nil {
			return err
		}
		b.server, err = startLocal(ctx, options, found, account)
		if err == nil || attempt == attempts || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
}

// settings are the caller's with those that make the server speak TDS, on 127.0.0.1 only: its own default is
// every address. They stand in the configuration file, because those that are kept with a database are lost
// with a session's first temporary table.
func (b *Babelfish) settings(callers map[string]string) map[string]string {
	all := map[string]string{
		"shared_preload_libraries":                         "babelfishpg_tds",
		"password_encryption":                              "md5", // TDS logins know no other
		"babelfishpg_tds.listen_addresses":                 "127.0.0.1",
		"babelfishpg_tds.port":                             strconv.Itoa(b.tdsPort),
		"babelfishpg_tds.unix_socket_directories":          "",
		"babelfishpg_tsql.database_name":                   babelfishHome,
		"babelfishpg_tsql.migration_mode":                  "multi-db",
		"babelfishpg_tsql.isolation_level_repeatable_read": "pg_isolation",
		"babelfishpg_tsql.isolation_level_serializable":    "pg_isolation",
	}
	maps.Copy(all, callers)
	return all
}

// prepare makes the database that all T-SQL databases live in, and the login that owns them.
func (b *Babelfish) prepare(ctx context.Context, account *account) error {
	// Logins of TDS are checked against this file, too.
	access := "local all all md5\nhost all all 127.0.0.1/32 md5\n"
	if _, err := b.server.folder.writeFor(account, filepath.Join("data", "pg_hba.conf"), access); err != nil {
		return fmt.Errorf("write pg_hba.conf: %w", err)
	}
	literal := "'" + b.loginWord + "'" // letters and digits
	// Each in a session of its own: initialize reads settings that must be in force by then.
	for _, step := range []struct{ database, statement string }{
		{superuser, "SELECT pg_reload_conf()"},
		{superuser, "CREATE USER " + babelfishLogin + " WITH CREATEDB CREATEROLE INHERIT PASSWORD " + literal},
		{superuser, "CREATE DATABASE " + babelfishHome + " OWNER " + babelfishLogin},
		{babelfishHome, "CREATE EXTENSION babelfishpg_tds CASCADE"},
		{babelfishHome, "GRANT ALL ON SCHEMA sys TO " + babelfishLogin},
		{babelfishHome, "CALL sys.initialize_babelfish('" + babelfishLogin + "')"},
	} {
		err := b.server.query(ctx, step.database, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, step.statement)
			return err
		})
		if err != nil {
			what, _, _ := strings.Cut(step.statement, " PASSWORD ")
			return fmt.Errorf("%s: %w%s", what, err, b.server.lastLog())
		}
	}
	return b.server.query(ctx, babelfishHome, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT extversion FROM pg_extension WHERE extname = 'babelfishpg_tsql'").Scan(&b.release)
	})
}

// Stop shuts the server down and removes its folder, as [Server.Stop] does.
func (b *Babelfish) Stop(ctx context.Context) error { return b.server.Stop(ctx) }

// CreateDatabase creates a database of T-SQL. There are no templates.
func (b *Babelfish) CreateDatabase(ctx context.Context, name string) error {
	if err := b.execute(ctx, "CREATE DATABASE "+quoted(name)); err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// DropDatabase drops a database of T-SQL, if it exists. Nobody may be connected to it.
func (b *Babelfish) DropDatabase(ctx context.Context, name string) error {
	if err := b.execute(ctx, "DROP DATABASE IF EXISTS "+quoted(name)); err != nil {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	return nil
}

func quoted(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }

func (b *Babelfish) execute(ctx context.Context, statement string) error {
	db, err := sql.Open("sqlserver", b.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// DSN returns a URL for T-SQL, with the password: do not log it. Without a database it is for master.
func (b *Babelfish) DSN(database string) string {
	values := url.Values{"encrypt": {"disable"}}
	if database != "" {
		values.Set("database", database)
	}
	return (&url.URL{
		Scheme:   "sqlserver",
		User:     url.UserPassword(babelfishLogin, b.loginWord),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(b.tdsPort)),
		RawQuery: values.Encode(),
	}).String()
}

// PostgresDSN returns a URL for the superuser of the PostgreSQL server that this is beneath, with the password:
// do not log it. In its database the schema s of the T-SQL database d is the schema d_s.
func (b *Babelfish) PostgresDSN() string { return b.server.DSN(babelfishHome) }

// Version returns the version of Babelfish, for instance "4.3.0".
func (b *Babelfish) Version() string { return b.release }

// String names the server without its passwords.
func (b *Babelfish) String() string {
	return fmt.Sprintf("babelfish %s (postgres %s) on 127.0.0.1:%d", b.release, b.server.version, b.tdsPort)
}

// GoString is String, so that %#v does not print the passwords either.
func (b *Babelfish) GoString() string { return b.String() }
