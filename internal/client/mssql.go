package client

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/fencectl/fencectl/internal/procedures"
)

type sqlServer struct {
	config    msdsn.Config
	connector driver.Connector
}

func openSQLServer(dsn string, options Options) (Target, error) {
	dsn = canonical(dsn)
	config, err := msdsn.Parse(dsn)
	if err != nil {
		return nil, &UnusableError{Reason: "cannot be used" + fileTrouble(err), Hint: sqlServerHint}
	}
	if options.Application != "" {
		dsn = withParameter(dsn, msdsn.AppName, options.Application)
	} else if config.Parameters[msdsn.AppName] == "" {
		dsn = withParameter(dsn, msdsn.AppName, application)
	}
	if config.Parameters[msdsn.DialTimeout] == "" && config.Parameters[msdsn.ConnectionTimeout] == "" {
		dsn = withParameter(dsn, msdsn.DialTimeout, fmt.Sprint(int(connectTimeout.Seconds())))
	}
	signIn := options.SignIn
	if signIn == nil {
		signIn = func(dsn string) (driver.Connector, error) { return mssql.NewConnector(dsn) }
	}
	connector, err := signIn(dsn)
	if err != nil {
		return nil, &UnusableError{Reason: "cannot be used: " + err.Error(), Hint: sqlServerHint}
	}
	return sqlServer{config: config, connector: connector}, nil
}

const sqlServerHint = "it is sqlserver://user:password@host:port?database=name&encrypt=true, with special characters of the " +
	"password percent-encoded; fedauth=ActiveDirectoryDefault signs in with Entra ID"

// canonical gives the alias mssql:// the name that the driver knows.
func canonical(dsn string) string {
	_, rest, _ := strings.Cut(strings.TrimSpace(dsn), "://")
	return "sqlserver://" + rest
}

// withParameter adds a parameter to a URL, which the driver has been able to read.
func withParameter(dsn, name, value string) string {
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

func (sqlServer) Engine() string { return "mssql" }

func (s sqlServer) Address() string {
	host := s.config.Host
	if s.config.Instance != "" {
		host += `\` + s.config.Instance
	} else if s.config.Port != 0 {
		host += fmt.Sprintf(":%d", s.config.Port)
	}
	return fmt.Sprintf("%s as %s on %s", shown(s.config.Database), shown(s.config.User), host)
}

// shown stands for what the connection string leaves to the server.
func shown(name string) string {
	if name == "" {
		return "(default)"
	}
	return name
}

func (s sqlServer) Connect(ctx context.Context) (Session, error) {
	db := sql.OpenDB(s.connector)
	conn, err := db.Conn(ctx)
	if err != nil {
		_ = db.Close() // nothing was opened
		return nil, err
	}
	session := &sqlServerSession{db: db, conn: conn}
	err = conn.QueryRowContext(ctx, "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), @@SPID, DB_NAME(), SUSER_SNAME()").
		Scan(&session.version, &session.process, &session.database, &session.user)
	if err != nil {
		_ = session.Close(ctx)
		return nil, err
	}
	return session, nil
}

type sqlServerSession struct {
	db       *sql.DB
	conn     *sql.Conn
	version  string
	process  int32
	database string
	user     string
}

func (s *sqlServerSession) Procedures() procedures.Procedures {
	return procedures.SQLServer{DB: s.conn}
}

func (s *sqlServerSession) Begin(ctx context.Context) (Transaction, error) {
	// It is rolled back when the context ends.
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return sqlServerTransaction{tx}, nil
}

func (s *sqlServerSession) Server() string {
	return fmt.Sprintf("server %s, session %d", s.version, s.process)
}

func (s *sqlServerSession) User() string     { return s.user }
func (s *sqlServerSession) Database() string { return s.database }

// Lost asks the driver, which remembers whether the connection failed.
func (s *sqlServerSession) Lost() bool {
	lost := true
	err := s.conn.Raw(func(conn any) error {
		known, ok := conn.(driver.Validator)
		lost = ok && !known.IsValid()
		return nil
	})
	return err != nil || lost
}

func (s *sqlServerSession) Close(context.Context) error {
	_ = s.conn.Close() // gives it back to the pool, which closes it
	return s.db.Close()
}

func (s *sqlServerSession) dialect() dialect { return sqlServerDialect{} }

func (s *sqlServerSession) query(ctx context.Context, sql string, args ...any) (rows, error) {
	return s.conn.QueryContext(ctx, sql, args...)
}

type sqlServerTransaction struct{ tx *sql.Tx }

func (t sqlServerTransaction) Procedures() procedures.Procedures {
	return procedures.SQLServer{DB: t.tx}
}

// BoundLockWait holds for the session, which is our own.
func (t sqlServerTransaction) BoundLockWait(ctx context.Context, limit time.Duration) error {
	_, err := t.tx.ExecContext(ctx, fmt.Sprintf("SET LOCK_TIMEOUT %d", min(milliseconds(limit), 1<<31-1)))
	return err
}

func (t sqlServerTransaction) Delete(ctx context.Context, table string, where ...Condition) error {
	text, args := deletion(sqlServerDialect{}, table, where)
	_, err := t.tx.ExecContext(ctx, text, args...)
	return err
}

// Commit does not take a context in database/sql: the one of Begin bounds it.
func (t sqlServerTransaction) Commit(context.Context) error { return t.tx.Commit() }
func (t sqlServerTransaction) Rollback(context.Context)     { _ = t.tx.Rollback() }
