package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/procedures"
)

const (
	connectTimeout = 10 * time.Second
	// farewellTimeout bounds what is done after the caller's context has ended.
	farewellTimeout = 10 * time.Second
	// cancelPatience is how long a call whose context has ended waits for the server to say so: less than
	// endTimeout, or a worker would be killed meanwhile.
	cancelPatience = time.Second
)

// StartDatabase starts a throwaway PostgreSQL and installs the fence in it. note is told what is being done. The
// caller stops the server; an error leaves nothing behind.
func StartDatabase(ctx context.Context, options devdb.Options, note func(string)) (server *devdb.Server, dsn string, err error) {
	note("starting a throwaway PostgreSQL")
	server, err = devdb.StartPostgres(ctx, options)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Stop(context.WithoutCancel(ctx)))
		}
	}()
	dsn = server.DSN("postgres")
	note("installing the fence in " + server.String())
	target, err := engine.Open(dsn, engine.Options{})
	if err != nil {
		return nil, "", err
	}
	_, err = deploy.New(target).Migrate(ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	return server, dsn, err
}

// connectConfig reads a connection string that [engine.Open] has accepted.
func connectConfig(dsn, application string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the connection string cannot be used")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	config.RuntimeParams["application_name"] = application
	for name := range config.RuntimeParams {
		// Settings of connection pools in Go. The server would refuse them.
		if strings.HasPrefix(name, "pool_") {
			delete(config.RuntimeParams, name)
		}
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// No prepared statements: a pooler may not know them.
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// When the context ends, the server is asked to cancel: a call that it went on with would change things
	// after the clean-up.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelPatience}
	}
	return config, nil
}

func connect(ctx context.Context, dsn, application string) (*pgx.Conn, error) {
	config, err := connectConfig(dsn, application)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, failed("connect", err)
	}
	return conn, nil
}

func closeConnection(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	defer cancel()
	// A failing farewell changes nothing.
	_ = conn.Close(ctx)
}

// failed says what was being done when a query failed.
func failed(doing string, err error) error {
	return because(procedures.Classify(err).Kind, doing, err)
}

// because gives an error the kind that the command line chooses its exit code by, where it is one of those that
// tell a person what to do.
func because(kind procedures.Kind, doing string, err error) error {
	switch kind {
	case procedures.KindNotInstalled, procedures.KindNotPermitted, procedures.KindCannotConnect:
		return &engine.Error{Kind: engine.Kind(kind), Message: doing, Err: err}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// fit checks, before anything is written, that the fence is installed and that this login may play the story.
func fit(ctx context.Context, conn *pgx.Conn) error {
	installed, missing, err := rights(ctx, conn)
	switch {
	case err != nil:
		return failed("look for the fence", err)
	case !installed:
		return &engine.Error{
			Kind:    engine.KindNotInstalled,
			Message: fmt.Sprintf("the fence is not installed in database %q, and demo does not install it", conn.Config().Database),
			Hint:    `run "fencectl migrate" on that database first, or run demo without --dsn: it then starts a database of its own`,
		}
	case len(missing) > 0:
		return &engine.Error{
			Kind:    engine.KindNotPermitted,
			Message: fmt.Sprintf("user %q has no right on %s", conn.Config().User, strings.Join(missing, ", ")),
			Hint:    "grant it the roles fence_worker and fence_reader, and fence_operator to let demo clean up",
		}
	}
	return nil
}

// rights tells whether the fence is installed, and which of the objects that the story needs this login may not
// use. An object that is not there cannot be used either.
func rights(ctx context.Context, conn *pgx.Conn) (installed bool, missing []string, err error) {
	const query = `
		WITH needed (name) AS (
		    VALUES ('acquire'), ('renew'), ('release'), ('publish'), ('check'),
		           ('lease_status'), ('publications'), ('rejections')),
		usable (name) AS (
		    SELECT p.proname::text
		      FROM pg_catalog.pg_proc p
		      JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		     WHERE n.nspname = 'fence' AND has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')
		    UNION ALL
		    SELECT c.relname::text
		      FROM pg_catalog.pg_class c
		      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		     WHERE n.nspname = 'fence' AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))
		SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p
		                 JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		                WHERE n.nspname = 'fence' AND p.proname = 'about'),
		       array(SELECT 'fence.' || name FROM needed WHERE name NOT IN (SELECT name FROM usable) ORDER BY name)`
	err = conn.QueryRow(ctx, query).Scan(&installed, &missing)
	return installed, missing, err
}

// poll asks again and again until the answer is yes.
func poll(ctx context.Context, pause time.Duration, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
