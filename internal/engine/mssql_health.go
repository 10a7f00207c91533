package engine

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

// Health implements [Reader]. Each check asks for itself, so that what one may not read costs no other.
func (s *mssqlSession) Health(ctx context.Context) ([]Finding, error) {
	checks := []struct {
		name string
		run  func(context.Context) (Finding, error)
	}{
		{"snapshot", s.checkSnapshot},
		{"compatibility_level", s.checkCompatibility},
		{"collation", s.checkCollation},
		{"optimized_locking", s.checkOptimizedLocking},
		{"availability_group", s.checkAvailabilityGroup},
		{"history", s.checkHistory},
		{"clock", s.checkClock},
		{"oldest_transaction", s.checkOldestTransaction},
	}
	var findings []Finding
	for _, check := range checks {
		finding, err := check.run(ctx)
		if err != nil {
			explained := explain(ctx, "check "+check.name, err)
			// Babelfish has one number for all that it does not know, too: only the end of ctx ends the checks.
			if KindOf(explained) == KindInterrupted {
				return nil, explained
			}
			finding = Finding{Status: FindingUnknown, Detail: "not readable: " + err.Error()}
		}
		finding.Check = check.name
		findings = append(findings, finding)
	}
	return findings, nil
}

// checkSnapshot: the routines' own reads do not depend on these settings, the callers' do.
func (s *mssqlSession) checkSnapshot(ctx context.Context) (Finding, error) {
	var committed, allowed sql.NullBool
	err := s.executor().QueryRowContext(ctx, `
SELECT d.is_read_committed_snapshot_on, CAST(CASE WHEN d.snapshot_isolation_state = 1 THEN 1 ELSE 0 END AS bit)
  FROM sys.databases d WHERE d.name = DB_NAME()`).Scan(&committed, &allowed)
	if err != nil {
		return Finding{}, err
	}
	if !committed.Valid {
		return unknown("this server does not tell whether READ_COMMITTED_SNAPSHOT is on")
	}
	return ok("READ_COMMITTED_SNAPSHOT is %s, snapshot isolation is %s; the routines take no snapshot of the fence with either",
		onOff(committed.Bool), onOff(allowed.Bool))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// mssqlCompatibility is the level of SQL Server 2019, the oldest version that the routines are written for.
const mssqlCompatibility = 150

func (s *mssqlSession) checkCompatibility(ctx context.Context) (Finding, error) {
	var level sql.NullInt64
	err := s.executor().QueryRowContext(ctx, "SELECT CAST(d.compatibility_level AS int) FROM sys.databases d WHERE d.name = DB_NAME()").Scan(&level)
	switch {
	case err != nil:
		return Finding{}, err
	case !level.Valid:
		return unknown("this server does not tell its compatibility level")
	case level.Int64 < mssqlCompatibility:
		return warning("ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 150, if the other users of the database allow it",
			"the compatibility level is %d: the routines are tested from %d on", level.Int64, mssqlCompatibility)
	}
	return ok("the compatibility level is %d", level.Int64)
}

func (s *mssqlSession) checkCollation(ctx context.Context) (Finding, error) {
	var collation sql.NullString
	err := s.executor().QueryRowContext(ctx, "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Collation') AS nvarchar(128))").Scan(&collation)
	if err != nil {
		return Finding{}, err
	}
	if !collation.Valid {
		return unknown("this server does not tell the database's collation")
	}
	return ok("the database's collation is %s; names in the fence have a binary one of their own", collation.String)
}

// checkOptimizedLocking: since 2025 an UPDATE may lock a row only after it has looked at it.
func (s *mssqlSession) checkOptimizedLocking(ctx context.Context) (Finding, error) {
	var on sql.NullInt64
	err := s.executor().QueryRowContext(ctx, "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'IsOptimizedLockingOn') AS int)").Scan(&on)
	if err != nil {
		return Finding{}, err
	}
	if !on.Valid {
		return ok("this server has no optimized locking")
	}
	return ok("optimized locking is %s; the routines lock the same rows with either", onOff(on.Int64 == 1))
}

// maySeeServer tells whether this login sees other sessions and replicas. SQL Server shows it its own alone
// without saying so.
func (s *mssqlSession) maySeeServer(ctx context.Context) (bool, error) {
	var may sql.NullInt64
	err := s.executor().QueryRowContext(ctx, "SELECT HAS_PERMS_BY_NAME(NULL, NULL, 'VIEW SERVER STATE')").Scan(&may)
	return may.Int64 == 1, err
}

const mssqlNeedsState = "GRANT VIEW SERVER STATE to this login"

func (s *mssqlSession) checkAvailabilityGroup(ctx context.Context) (Finding, error) {
	var enabled sql.NullInt64
	err := s.executor().QueryRowContext(ctx, "SELECT CAST(SERVERPROPERTY('IsHadrEnabled') AS int)").Scan(&enabled)
	if err != nil {
		return Finding{}, err
	}
	if enabled.Valid && enabled.Int64 == 0 {
		return ok("availability groups are not enabled on this server")
	}
	may, err := s.maySeeServer(ctx)
	if err != nil || !may {
		f, _ := unknown("this login may not see the replicas")
		f.Hint = mssqlNeedsState
		return f, err
	}
	var replicas int
	var asynchronous []string
	var name string
	var mode int
	err = s.each(ctx, `
SELECT r.replica_server_name, CAST(r.availability_mode AS int)
  FROM sys.dm_hadr_database_replica_states d
  JOIN sys.availability_replicas r ON r.replica_id = d.replica_id
 WHERE d.database_id = DB_ID() AND d.is_local = 0`, []any{&name, &mode}, func() {
		replicas++
		if mode == 0 {
			asynchronous = append(asynchronous, name)
		}
	})
	switch {
	case err != nil:
		return Finding{}, err
	case len(asynchronous) > 0:
		return warning("a forced fail-over to one of them loses commits, and generations are given out twice: run `fencectl raise-floor` after it, before anybody works",
			"replicas in asynchronous mode: %s", strings.Join(asynchronous, ", "))
	}
	return ok("%d other replicas, none in asynchronous mode", replicas)
}

// checkHistory compares the fork of the log that was recorded with the database's: they differ after a restore,
// and after a fail-over that lost commits.
func (s *mssqlSession) checkHistory(ctx context.Context) (Finding, error) {
	var installed, same sql.NullBool
	err := s.executor().QueryRowContext(ctx, "SELECT CAST(CASE WHEN OBJECT_ID(N'fence.epoch') IS NULL THEN 0 ELSE 1 END AS bit)").Scan(&installed)
	if err != nil {
		return Finding{}, err
	}
	if !installed.Bool {
		return ok("the fence is not installed: nothing is recorded")
	}
	err = s.executor().QueryRowContext(ctx, `
SELECT CAST(CASE WHEN e.recovery_fork_guid = r.recovery_fork_guid THEN 1
                 WHEN e.recovery_fork_guid <> r.recovery_fork_guid THEN 0 END AS bit)
  FROM fence.epoch e
  LEFT JOIN sys.database_recovery_status r ON r.database_id = DB_ID()`).Scan(&same)
	switch {
	case err != nil:
		return Finding{}, err
	case !same.Valid:
		f, err := unknown("the fork of the log is not recorded, or this login may not see it")
		f.Hint = "after a restore, or a fail-over with loss, run `fencectl raise-floor` before anybody works: nothing raises generations by itself on this engine"
		return f, err
	case !same.Bool:
		return Finding{
			Status: FindingUnfit,
			Detail: "the database was restored, or failed over with loss, since the fence was installed: generations can be given out twice",
			Hint:   "fencectl raise-floor --all --at-least N, with N above every generation that was ever given out",
		}, nil
	}
	return ok("the database was neither restored nor failed over with loss since the fence was installed")
}

func (s *mssqlSession) checkClock(ctx context.Context) (Finding, error) {
	return clockFinding(func() (server time.Time, err error) {
		err = s.executor().QueryRowContext(ctx, "SELECT SYSUTCDATETIME()").Scan(&server)
		return server, err
	})
}

// checkOldestTransaction finds what take-overs may wait for.
func (s *mssqlSession) checkOldestTransaction(ctx context.Context) (Finding, error) {
	may, err := s.maySeeServer(ctx)
	if err != nil || !may {
		f, _ := unknown("this login may not see the transactions of other sessions")
		f.Hint = mssqlNeedsState
		return f, err
	}
	var session, seconds sql.NullInt64
	var who sql.NullString
	err = s.executor().QueryRowContext(ctx, `
SELECT TOP (1) t.session_id, DATEDIFF(second, a.transaction_begin_time, GETDATE()), CONCAT(e.login_name, N', ', e.program_name)
  FROM sys.dm_tran_database_transactions d
  JOIN sys.dm_tran_active_transactions a ON a.transaction_id = d.transaction_id
  JOIN sys.dm_tran_session_transactions t ON t.transaction_id = d.transaction_id
  JOIN sys.dm_exec_sessions e ON e.session_id = t.session_id
 WHERE d.database_id = DB_ID() AND t.session_id <> @@SPID
 ORDER BY a.transaction_begin_time`).Scan(&session, &seconds, &who)
	switch {
	case err == sql.ErrNoRows:
		return ok("no other transaction is open in this database")
	case err != nil:
		return Finding{}, err
	case seconds.Int64 > int64(oldTransaction.Seconds()):
		return warning("if it holds a lease, a take-over waits for it: nothing ends a stalled transaction by itself on this engine; KILL ends a session",
			"the oldest open transaction has lasted for %s (session %d, %s)", time.Duration(seconds.Int64)*time.Second, session.Int64, who.String)
	}
	return ok("the oldest open transaction has lasted for %d s", seconds.Int64)
}
