package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/procedures"
)

// pooled is a PostgreSQL behind a PgBouncer in transaction mode: each transaction of a session may run on
// another server connection. It shares the server, and its databases, with the engine that it embeds.
type pooled struct {
	*postgres
	pooler *devdb.Pgbouncer

	mu        sync.Mutex
	impatient map[time.Duration]string // roles whose waits for locks are bounded, by their bound
}

// poolFor puts a PgBouncer before a server. Where there is none it returns no engine and says so.
func poolFor(ctx context.Context, e *postgres) (pool engine, missing string, err error) {
	pooler, err := devdb.StartPgbouncer(ctx, e.server, devdb.TransactionPooling)
	if errors.Is(err, devdb.ErrNoPgbouncer) {
		return nil, e.name() + " through PgBouncer: not run: there is no pgbouncer", nil
	}
	if err != nil {
		return nil, "", err
	}
	return &pooled{postgres: e, pooler: pooler, impatient: map[time.Duration]string{}}, "", nil
}

func (e *pooled) name() string {
	how := "unnamed statements"
	if e.pooler.PreparedStatements() {
		how = "prepared statements"
	}
	return fmt.Sprintf("%s through PgBouncer %s with %s", e.title, e.pooler.Version(), how)
}

func (e *pooled) can(need capability) bool {
	return need != directSessions && e.postgres.can(need)
}

func (e *pooled) stop(ctx context.Context) error { return e.pooler.Stop(ctx) }

func (e *pooled) create(t *testing.T) backend {
	return &pooledDatabase{postgresDatabase: e.postgres.create(t).(*postgresDatabase), engine: e}
}

func (e *pooled) lend(t *testing.T) backend {
	return &pooledDatabase{postgresDatabase: e.postgres.lend(t).(*postgresDatabase), engine: e}
}

// impatientRole returns a role whose waits for locks are bounded. A setting that belongs to the role comes
// with every server connection that the pooler opens for it, while one that a session sets stays behind on
// whichever connection it reached, for the next client.
func (e *pooled) impatientRole(ctx context.Context, after time.Duration) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.impatient[after] == "" {
		role := databaseName("impatient")
		_, err := e.admin.Exec(ctx, fmt.Sprintf(`
			CREATE ROLE %[1]s SUPERUSER LOGIN PASSWORD 'open sesame';
			ALTER ROLE %[1]s SET lock_timeout = %[2]d`, role, after.Milliseconds()))
		if err != nil {
			return "", err
		}
		e.impatient[after] = role
	}
	return e.impatient[after], nil
}

// pooledDatabase is a database whose sessions come through the pooler; what the test itself reads and
// changes does not.
type pooledDatabase struct {
	*postgresDatabase
	engine *pooled
}

func (d *pooledDatabase) connect(ctx context.Context, name string) (connection, error) {
	conn, err := d.dial(ctx, name, "", "")
	if err != nil {
		return nil, err
	}
	c := &pooledConnection{database: d, name: name}
	c.use(conn)
	return c, nil
}

func (d *pooledDatabase) dial(ctx context.Context, name, user, password string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(d.engine.pooler.DSN(d.database))
	if err != nil {
		return nil, err
	}
	if user != "" {
		config.User, config.Password = user, password
	}
	config.RuntimeParams["application_name"] = name
	if !d.engine.pooler.PreparedStatements() {
		// Parse, bind and execute in one message: a statement that is prepared in one transaction may be
		// missing on the connection that the next one gets.
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return pgx.ConnectConfig(ctx, config)
}

// pooledConnection is one client of the pooler.
type pooledConnection struct {
	postgresConnection
	database *pooledDatabase
	name     string
}

func (c *pooledConnection) use(conn *pgx.Conn) {
	c.postgresConnection = postgresConnection{Postgres: procedures.Postgres{DB: conn}, conn: conn}
}

func (c *pooledConnection) inTransaction() bool { return c.conn.PgConn().TxStatus() != 'I' }

// boundLockWaits connects anew as a role that brings the setting along, or sets it for the open transaction.
func (c *pooledConnection) boundLockWaits(ctx context.Context, after time.Duration) error {
	if c.inTransaction() {
		return c.change(ctx, "lock_timeout", fmt.Sprintf("%dms", after.Milliseconds()))
	}
	role, err := c.database.engine.impatientRole(ctx, after)
	if err != nil {
		return err
	}
	conn, err := c.database.dial(ctx, c.name, role, "open sesame")
	if err != nil {
		return err
	}
	if err := c.conn.Close(ctx); err != nil {
		return err
	}
	c.use(conn)
	return nil
}

func (c *pooledConnection) change(ctx context.Context, name, value string) error {
	if !c.inTransaction() {
		return fmt.Errorf("set %s for a session behind a pooler: the behaviour needs %s", name, directSessions)
	}
	return c.execute(ctx, "SELECT set_config($1, $2, true)", name, value)
}
