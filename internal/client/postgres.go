package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/fencectl/fencectl/internal/procedures"
)

type postgres struct{ config *pgx.ConnConfig }

func openPostgres(dsn string, options Options) (Target, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, &UnusableError{
			Reason: "cannot be used" + fileTrouble(err),
			Hint: "it is postgres://user:password@host:port/database?..., with special characters of the password " +
				"percent-encoded, or host=... user=... dbname=..., or sqlserver://user:password@host?database=...",
		}
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if options.Application != "" {
		config.RuntimeParams["application_name"] = options.Application
	} else if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = application
	}
	for name := range config.RuntimeParams {
		// Settings of connection pools in Go, which share their DSN with us. The server would refuse them.
		if strings.HasPrefix(name, "pool_") {
			delete(config.RuntimeParams, name)
		}
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// No prepared statements: each is used once, and a pooler may not know them.
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// Ctrl-C and time-outs ask the server to cancel, rather than to leave it working on a dead connection.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: options.CancelPatience}
	}
	return postgres{config}, nil
}

func (postgres) Engine() string { return "postgres" }

func (p postgres) Address() string {
	return fmt.Sprintf("%s as %s on %s:%d", p.config.Database, p.config.User, p.config.Host, p.config.Port)
}

func (p postgres) Connect(ctx context.Context) (Session, error) {
	conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return nil, err
	}
	return &postgresSession{conn}, nil
}

type postgresSession struct{ conn *pgx.Conn }

func (s *postgresSession) Procedures() procedures.Procedures { return procedures.Postgres{DB: s.conn} }

func (s *postgresSession) Begin(ctx context.Context) (Transaction, error) {
	// Not pgx.BeginFunc: when the answer to COMMIT is lost, it returns the error of its ROLLBACK instead, which
	// says that nothing was sent.
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return postgresTransaction{tx}, nil
}

func (s *postgresSession) Server() string {
	return fmt.Sprintf("server %s, backend %d", s.conn.PgConn().ParameterStatus("server_version"), s.conn.PgConn().PID())
}

func (s *postgresSession) User() string                    { return s.conn.Config().User }
func (s *postgresSession) Database() string                { return s.conn.Config().Database }
func (s *postgresSession) Lost() bool                      { return s.conn.IsClosed() }
func (s *postgresSession) Close(ctx context.Context) error { return s.conn.Close(ctx) }
func (s *postgresSession) dialect() dialect                { return postgresDialect{} }

func (s *postgresSession) query(ctx context.Context, sql string, args ...any) (rows, error) {
	found, err := s.conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return postgresRows{found}, nil
}

type postgresRows struct{ pgx.Rows }

func (r postgresRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

type postgresTransaction struct{ tx pgx.Tx }

func (t postgresTransaction) Procedures() procedures.Procedures { return procedures.Postgres{DB: t.tx} }

// BoundLockWait holds for this transaction only: behind a pooler, a session's settings are somebody else's next.
func (t postgresTransaction) BoundLockWait(ctx context.Context, limit time.Duration) error {
	_, err := t.tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprint(milliseconds(limit)))
	return err
}

func (t postgresTransaction) Delete(ctx context.Context, table string, where ...Condition) error {
	text, args := deletion(postgresDialect{}, table, where)
	_, err := t.tx.Exec(ctx, text, args...)
	return err
}

func (t postgresTransaction) Commit(ctx context.Context) error { return t.tx.Commit(ctx) }
func (t postgresTransaction) Rollback(ctx context.Context)     { _ = t.tx.Rollback(ctx) }

// milliseconds rounds up, since 0 is no bound at all.
func milliseconds(d time.Duration) int64 { return max(1, d.Milliseconds()) }
