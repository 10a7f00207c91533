package engine

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
)

// applicationLock declares the name of the lock. Application locks belong to one database; on Babelfish all
// databases share them, and therefore the name has the database's.
const applicationLock = "DECLARE @lock nvarchar(255) = N'fencectl migrate ' + DB_NAME();\n"

// errLockTaken says that another session has the lock.
var errLockTaken = errors.New("another session holds the migration lock")

// session is a connection, or a pool of exactly one.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// errorLockTaken is the number of the error that tells of a lock that was not granted.
const errorLockTaken = 51222

// tryApplicationLock asks once, and does not wait. The return code tells (SQL Server says -1, Babelfish -999),
// and becomes an error: Babelfish 4 falls over at a session's sixth lock that is not granted, unless an error
// was raised in between, and forgets who the user is unless the schema is named.
func tryApplicationLock(ctx context.Context, s session) error {
	_, err := s.ExecContext(ctx, applicationLock+`DECLARE @code int;
EXEC @code = sys.sp_getapplock @Resource = @lock, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
IF @code IN (-1, -999)
    THROW `+strconv.Itoa(errorLockTaken)+`, N'another session holds the migration lock', 1;
IF @code < 0
    RAISERROR(N'sp_getapplock answered %d', 16, 1, @code);`)
	var server mssqldb.Error
	if errors.As(err, &server) && server.Number == errorLockTaken {
		return errLockTaken
	}
	return err
}

func releaseApplicationLock(ctx context.Context, s session) error {
	_, err := s.ExecContext(ctx, applicationLock+"EXEC sys.sp_releaseapplock @Resource = @lock, @LockOwner = N'Session'")
	return err
}

// MSSQLLocker is the migration lock of SQL Server as goose's lock.SessionLocker, for other users of goose: it
// excludes them and `fencectl migrate` from one another.
type MSSQLLocker struct {
	// Timeout bounds the wait; 0 tries once.
	Timeout time.Duration
}

// SessionLock takes the lock for the connection's session.
func (l MSSQLLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return pollLock(ctx, l.Timeout, func() error { return tryApplicationLock(ctx, conn) }, nil)
}

// SessionUnlock gives it back.
func (MSSQLLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return releaseApplicationLock(ctx, conn)
}

// pollLock asks again and again instead of waiting in the server, so that a Ctrl-C need not be sent there.
func pollLock(ctx context.Context, timeout time.Duration, try func() error, report func()) error {
	deadline := time.Now().Add(timeout)
	pause, nextReport := 20*time.Millisecond, time.Now()
	for {
		err := try()
		if !errors.Is(err, errLockTaken) {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return err
		}
		if report != nil && time.Now().After(nextReport) {
			report()
			nextReport = time.Now().Add(5 * time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, left)):
			pause = min(2*pause, 250*time.Millisecond)
		}
	}
}

func (s *mssqlSession) lock(ctx context.Context, options WriteOptions) error {
	var report func()
	if options.Waiting != nil {
		report = func() { options.Waiting(s.holders(ctx)) }
	}
	err := pollLock(ctx, options.LockTimeout, func() error { return tryApplicationLock(ctx, s.db) }, report)
	if errors.Is(err, errLockTaken) {
		known := lockTimeout(options.LockTimeout, errLockTaken.Error(), s.holders(ctx)).(*Error)
		if len(known.Holders) > 0 {
			known.Hint = "wait for it, or end it: KILL session"
		} else {
			known.Hint = "wait for it; who it is, only a login with VIEW SERVER STATE may see"
		}
		return known
	}
	s.locked = err == nil
	return err
}

// holders names the sessions that have the lock, where this login may see them: it needs VIEW SERVER STATE, and
// Babelfish has no view of locks. That it may not see them is no failure of its own.
func (s *mssqlSession) holders(ctx context.Context) []Holder {
	rows, err := s.db.QueryContext(ctx, `
SELECT e.session_id, COALESCE(e.login_name, N''), COALESCE(e.program_name, N''), COALESCE(e.host_name, N''), e.status, e.login_time
  FROM sys.dm_tran_locks l
  JOIN sys.dm_exec_sessions e ON e.session_id = l.request_session_id
 WHERE l.resource_type = N'APPLICATION' AND l.request_status = N'GRANT' AND l.resource_database_id = DB_ID()
   AND l.resource_description LIKE N'%fencectl%' AND l.request_session_id <> @@SPID
 ORDER BY e.session_id`)
	if err != nil {
		return nil
	}
	defer rows.Close()
	var holders []Holder
	for rows.Next() {
		var h Holder
		var since time.Time
		if rows.Scan(&h.PID, &h.User, &h.ApplicationName, &h.ClientAddress, &h.State, &since) != nil {
			return nil
		}
		holders = append(holders, h)
	}
	if rows.Err() != nil {
		return nil
	}
	return holders
}

// mssqlConnectError explains why there is no connection.
func mssqlConnectError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, "connect", err)
	}
	known := &Error{Kind: KindCannotConnect, Message: "connect", Err: err}
	var server mssqldb.Error
	if errors.As(err, &server) && kindOfNumber(server.Number) == KindNotPermitted {
		known.Kind = KindNotPermitted
	}
	return known
}

// kindOfNumber knows the documented numbers. Another one is an error of the server all the same: the session
// goes on, and it is known what was done.
func kindOfNumber(number int32) Kind {
	switch number {
	case 229, 230, 262, 297, 300, 916, 2760, 15151, 15247, 15517, 18456:
		return KindNotPermitted
	case 1222:
		return KindLockTimeout
	}
	return KindOther
}
