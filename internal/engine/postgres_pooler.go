package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

type poolerMode int

const (
	poolerNone        poolerMode = iota // the session is the server's own
	poolerSession                       // a pooler or proxy that keeps a session for each client
	poolerTransaction                   // a pooler that gives the session to others in between
)

// poolerRounds is how often two clients are compared. A pooler in transaction mode either takes another
// server for one client's next statement, or gives a second client the one that was just given back.
const poolerRounds = 5

// findPooler finds out what stands between this client and the server. The server tells its process id in
// the start-up packet; a pooler makes one up there, while pg_backend_pid() is the server's own.
func findPooler(ctx context.Context, conn *pgx.Conn, config *pgx.ConnConfig) (poolerMode, error) {
	first, err := backendPID(ctx, conn)
	if err != nil {
		return poolerNone, err
	}
	pooled := first != conn.PgConn().PID()
	for range 2 {
		pid, err := backendPID(ctx, conn)
		if err != nil {
			return poolerNone, err
		}
		pooled = pooled || pid != conn.PgConn().PID()
		if pid != first {
			return poolerTransaction, nil
		}
	}
	if !pooled {
		return poolerNone, nil
	}
	return comparePooledClients(ctx, conn, config, first)
}

// comparePooledClients opens a second client: in session mode it never meets the server of the first.
func comparePooledClients(ctx context.Context, conn *pgx.Conn, config *pgx.ConnConfig, first uint32) (poolerMode, error) {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	second, err := pgx.ConnectConfig(limited, config.Copy())
	if err != nil {
		return unanswered(ctx, err)
	}
	defer closeDetached(ctx, second)
	for range poolerRounds {
		own, err := backendPID(ctx, conn)
		if err != nil {
			return poolerNone, err
		}
		other, err := backendPID(limited, second)
		if err != nil {
			return unanswered(ctx, err)
		}
		if own != first || other == own {
			return poolerTransaction, nil
		}
	}
	return poolerSession, nil
}

// unanswered judges a second client that got no session in time, or was turned away: the pool is busy, and its
// sessions may or may not be shared. The careful answer is that they are.
func unanswered(ctx context.Context, err error) (poolerMode, error) {
	if ctx.Err() != nil {
		return poolerNone, err
	}
	return poolerTransaction, nil
}

func backendPID(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	var pid int32
	err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid)
	return uint32(pid), err
}
