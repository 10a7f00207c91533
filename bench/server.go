package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
)

// server is where the databases of a run are made.
type server struct {
	config   *pgx.ConnConfig
	version  string
	settings map[string]string
	prefix   string // of the names of all databases of this run
	stop     func(context.Context) error
}

// openServer connects to the server that dsn names, or starts a throwaway one with PostgreSQL's own, durable
// settings.
func openServer(ctx context.Context, dsn string) (*server, error) {
	s := &server{
		prefix: "fencectl_bench_" + strings.ToLower(rand.Text()[:8]),
		stop:   func(context.Context) error { return nil },
	}
	if dsn == "" {
		keepMemory()
		throwaway, err := devdb.StartPostgres(ctx, devdb.Options{})
		if err != nil {
			return nil, err
		}
		dsn, s.stop = throwaway.DSN("postgres"), throwaway.Stop
	}
	err := s.prepare(ctx, dsn)
	if err != nil {
		s.close(ctx, io.Discard)
		return nil, fmt.Errorf("prepare the server: %w", err)
	}
	return s, nil
}

// close drops what the run made, also when ctx is over.
func (s *server) close(ctx context.Context, progress io.Writer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if s.config != nil {
		if err := s.execute(ctx, "DROP DATABASE IF EXISTS "+s.template()); err != nil {
			fmt.Fprintln(progress, "bench: clean up:", err)
		}
	}
	if err := s.stop(ctx); err != nil {
		fmt.Fprintln(progress, "bench: clean up:", err)
	}
}

func (s *server) template() string { return s.prefix + "_template" }

// prepare reads the server's settings and makes the template of all databases.
func (s *server) prepare(ctx context.Context, dsn string) (err error) {
	if s.config, err = pgx.ParseConfig(dsn); err != nil {
		return err
	}
	if err := s.readSettings(ctx); err != nil {
		return err
	}
	if err := s.execute(ctx, "CREATE DATABASE "+s.template()+" ENCODING 'UTF8' TEMPLATE template0"); err != nil {
		return err
	}
	return migrate(ctx, databaseOf(dsn, s.template()))
}

// migrate installs the fence as `fencectl migrate` does.
func migrate(ctx context.Context, dsn string) error {
	e, err := engine.Open(dsn, engine.Options{})
	if err != nil {
		return err
	}
	_, err = deploy.New(e).Migrate(ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	return err
}

// databaseOf returns the connection string for another database of the same server.
func databaseOf(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		u.Path = "/" + name
		return u.String()
	}
	return dsn + " dbname=" + name // the last one counts
}

// keepMemory tells the C library of a server that this process starts to keep what a call has given back.
// By its default it may give memory back to the system at the end of every call, or never, depending on how
// the heap of a session happens to lie: a cost that would fall on either side by chance.
func keepMemory() {
	for name, value := range map[string]string{"MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_TOP_PAD_": "1048576"} {
		if os.Getenv(name) == "" {
			os.Setenv(name, value)
		}
	}
}

func (s *server) readSettings(ctx context.Context) error {
	return s.with(ctx, s.config.Database, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `
			SELECT name, current_setting(name)
			  FROM pg_settings
			 WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method',
			                'shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'autovacuum')`)
		if err != nil {
			return err
		}
		s.settings = map[string]string{}
		var name, value string
		_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
			s.settings[name] = value
			return nil
		})
		s.version, _, _ = strings.Cut(s.settings["server_version"], " ")
		delete(s.settings, "server_version")
		return err
	})
}

// connect opens a connection that lives as long as the caller wants.
func (s *server) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	config := s.config.Copy()
	config.Database = database
	return pgx.ConnectConfig(ctx, config)
}

func (s *server) with(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	conn, err := s.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

func (s *server) execute(ctx context.Context, statement string) error {
	return s.with(ctx, s.config.Database, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// create makes a migrated database with a number of leases that reset loads.
func (s *server) create(ctx context.Context, leases int) (*database, error) {
	d := &database{server: s, name: fmt.Sprintf("%s_%d", s.prefix, leases), leases: leases}
	return d, s.execute(ctx, "CREATE DATABASE "+d.name+" TEMPLATE "+s.template())
}
