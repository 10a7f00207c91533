package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Health implements [Reader]. Each check asks for itself, so that what one may not read costs no other.
func (s *postgresSession) Health(ctx context.Context) ([]Finding, error) {
	checks := []struct {
		name string
		run  func(context.Context) (Finding, error)
	}{
		{"pooler", s.checkPooler},
		{"fsync", s.checkSwitch("fsync", FindingUnfit, "a crash of the machine can corrupt or lose everything: set fsync = on")},
		{"full_page_writes", s.checkSwitch("full_page_writes", FindingWarning, "a crash can tear pages, unless the file system cannot: set full_page_writes = on")},
		{"synchronous_commit", s.checkSynchronousCommit},
		{"standbys", s.checkStandbys},
		{"history", s.checkHistory},
		{"clock", s.checkClock},
		{"oldest_transaction", s.checkOldestTransaction},
		{"prepared_transactions", s.checkPreparedTransactions},
		{"idle_in_transaction", s.checkIdleTransactions},
		{"tcp_keepalives", s.checkKeepalives},
		{"transaction_isolation", s.checkIsolation},
		{"read_only", s.checkReadOnly},
		{"lock_timeout", s.checkLockTimeout},
		{"connections", s.checkConnections},
		{"autovacuum", s.checkSwitch("autovacuum", FindingWarning, "lease rows are rewritten all the time and have to be vacuumed: set autovacuum = on")},
	}
	var findings []Finding
	for _, check := range checks {
		var finding Finding
		err := savepoint(ctx, s.conn, func() (err error) {
			finding, err = check.run(ctx)
			return err
		})
		if err != nil {
			explained := explain(ctx, "check "+check.name, err)
			if kind := KindOf(explained); kind == KindInterrupted || kind == KindOutcomeUnknown {
				return nil, explained
			}
			finding = Finding{Status: FindingUnknown, Detail: "not readable: " + err.Error()}
		}
		finding.Check = check.name
		findings = append(findings, finding)
	}
	return findings, nil
}

func ok(format string, args ...any) (Finding, error) {
	return Finding{Status: FindingOK, Detail: fmt.Sprintf(format, args...)}, nil
}

func unknown(format string, args ...any) (Finding, error) {
	return Finding{Status: FindingUnknown, Detail: fmt.Sprintf(format, args...)}, nil
}

func warning(hint, format string, args ...any) (Finding, error) {
	return Finding{Status: FindingWarning, Detail: fmt.Sprintf(format, args...), Hint: hint}, nil
}

func (s *postgresSession) setting(ctx context.Context, name string) (string, error) {
	var value string
	err := s.conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}

// number returns a numeric setting in its base unit (milliseconds or seconds), which SHOW would scale.
func (s *postgresSession) number(ctx context.Context, name string) (int64, error) {
	var value string
	if err := s.conn.QueryRow(ctx, "SELECT setting FROM pg_catalog.pg_settings WHERE name = $1", name).Scan(&value); err != nil {
		return 0, err
	}
	return strconv.ParseInt(value, 10, 64)
}

// checkSwitch wants a setting on.
func (s *postgresSession) checkSwitch(name string, off FindingStatus, hint string) func(context.Context) (Finding, error) {
	return func(ctx context.Context) (Finding, error) {
		value, err := s.setting(ctx, name)
		if err != nil || value == "on" {
			return Finding{Status: FindingOK, Detail: name + " is on"}, err
		}
		return Finding{Status: off, Detail: name + " is " + value, Hint: hint}, nil
	}
}

func (s *postgresSession) checkPooler(context.Context) (Finding, error) {
	switch s.pooler {
	case poolerTransaction:
		return warning("applications may go through it; `fencectl migrate` and `uninstall` need a direct connection. PgBouncer before 1.21 knows no prepared statements in this mode",
			"there is a transaction-mode pooler in between, or one that is too busy to tell")
	case poolerSession:
		return ok("there is a pooler or proxy in between, and it keeps a session for each client")
	}
	return ok("connected to the server directly")
}

func (s *postgresSession) checkSynchronousCommit(ctx context.Context) (Finding, error) {
	value, err := s.setting(ctx, "synchronous_commit")
	if err != nil {
		return Finding{}, err
	}
	switch value {
	case "off":
		return warning("generations and floors are safe (their routines make their own commit durable); turn it on for what is published",
			"synchronous_commit is off for this session: a crash loses the publishes of the last moments")
	case "local", "remote_write":
		return warning("with synchronous standbys use on or remote_apply", "synchronous_commit is %s: a fail-over may lose the last commits", value)
	}
	return ok("synchronous_commit is %s", value)
}

func (s *postgresSession) checkStandbys(ctx context.Context) (Finding, error) {
	names, err := s.setting(ctx, "synchronous_standby_names")
	if err != nil {
		return Finding{}, err
	}
	var all, hiddenOnes, asynchronous int
	var who string
	err = s.conn.QueryRow(ctx, `
SELECT count(*), count(*) FILTER (WHERE r.sync_state IS NULL), count(*) FILTER (WHERE r.sync_state IN ('async', 'potential')),
       coalesce(string_agg(r.application_name || ' ' || r.sync_state, ', ' ORDER BY r.application_name), '')
  FROM pg_catalog.pg_stat_replication r`).Scan(&all, &hiddenOnes, &asynchronous, &who)
	switch {
	case err != nil:
		return Finding{}, err
	case hiddenOnes > 0:
		f, err := unknown("%d standbys are connected; this user may not see whether they are synchronous", all)
		f.Hint = "GRANT pg_read_all_stats (or pg_monitor) to this user"
		return f, err
	case all == 0 && names != "":
		return warning("commits wait for a standby that is not there", "synchronous_standby_names is %q, and no standby is connected", names)
	case all == 0:
		return ok("no standby is connected (one that a managed service replicates by its storage cannot be seen from here)")
	case names == "":
		return warning("a promoted one may have lost the last commits. Generations then jump ahead, so that none is given out twice as long as only one server is promoted; results that were lost stay lost. Set synchronous_standby_names for more",
			"all %d standbys are asynchronous (%s)", all, who)
	case asynchronous > 0:
		return warning("never promote an asynchronous one", "synchronous_standby_names is %q; %d of %d standbys are asynchronous (%s)", names, asynchronous, all, who)
	}
	return ok("synchronous_standby_names is %q; the standbys are synchronous (%s)", names, who)
}

// checkHistory compares the history that the last grant saw with the one that the server writes now. Neither a
// second promotion of the same backup nor a volume that was rolled back under a running server can be seen.
func (s *postgresSession) checkHistory(ctx context.Context) (Finding, error) {
	var installed bool
	if err := s.conn.QueryRow(ctx, "SELECT to_regclass('fence.epoch') IS NOT NULL").Scan(&installed); err != nil {
		return Finding{}, err
	}
	var identifier, timeline int64
	if err := s.conn.QueryRow(ctx, `
SELECT c.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
  FROM pg_control_system() c`).Scan(&identifier, &timeline); err != nil {
		return Finding{Status: FindingUnknown, Detail: "this server does not show its timeline here: " + err.Error(),
			Hint: "after a restore or a fail-over that lost commits, raise the floor by hand: fencectl raise-floor"}, nil
	}
	if !installed {
		return ok("%s; no fence is installed", timelineText(timeline))
	}
	var epoch int64
	var knownIdentifier, knownTimeline *int64
	err := savepoint(ctx, s.conn, func() error {
		return s.conn.QueryRow(ctx, "SELECT e.epoch, e.system_identifier, e.timeline FROM fence.epoch e").Scan(&epoch, &knownIdentifier, &knownTimeline)
	})
	if err != nil {
		return Finding{Status: FindingUnknown, Detail: timelineText(timeline) + "; which one the last grant saw is not readable for this user",
			Hint: "run doctor as the owner of the schema fence"}, nil
	}
	return judgeHistory(identifier, timeline, epoch, knownIdentifier, knownTimeline)
}

func timelineText(timeline int64) string {
	if timeline <= 1 {
		return "timeline 1: never promoted, and not restored to a point in time, since initdb"
	}
	return fmt.Sprintf("timeline %d: promoted or restored to a point in time before", timeline)
}

const twinHint = "two servers promoted from one backup, and a volume rolled back to a snapshot, cannot be told apart from here: after such a restore raise the floor above the highest number in use (fencectl raise-floor)"

func judgeHistory(identifier, timeline, epoch int64, knownIdentifier, knownTimeline *int64) (Finding, error) {
	switch {
	case knownTimeline == nil || knownIdentifier == nil:
		return ok("%s; no grant has recorded it yet", timelineText(timeline))
	case *knownIdentifier != identifier:
		return warning(twinHint, "this is another cluster than the one of the last grant (a dump was restored, or pg_upgrade ran): the next grant begins epoch %d; %s", epoch+1, timelineText(timeline))
	case *knownTimeline > timeline:
		return warning(twinHint, "the last grant was on timeline %d, and this is timeline %d: an older backup was restored, and the next grant begins another epoch", *knownTimeline, timeline)
	case *knownTimeline < timeline:
		return warning(twinHint, "promoted since the last grant (timeline %d, then %d): the next grant begins another epoch", *knownTimeline, timeline)
	}
	f, err := ok("epoch %d; %s", epoch, timelineText(timeline))
	if timeline > 1 {
		f.Hint = twinHint
	}
	return f, err
}

// clockTolerance is how far the client's clock may be off before people who compare logs are misled.
const clockTolerance = 2 * time.Second

// clockFinding compares the clocks. The server's was read somewhere in the round trip, so that half of it is
// the error of the estimate. The best of three counts.
func clockFinding(read func() (time.Time, error)) (Finding, error) {
	var offset, uncertain time.Duration
	for i := range 3 {
		before := time.Now()
		server, err := read()
		if err != nil {
			return Finding{}, err
		}
		half := time.Since(before) / 2
		if i == 0 || half < uncertain {
			offset, uncertain = before.Add(half).Sub(server), half
		}
	}
	text := fmt.Sprintf("this client's clock is %s ± %s from the server's", offset.Round(time.Microsecond), uncertain.Round(time.Microsecond))
	if offset.Abs()-uncertain > clockTolerance {
		return warning("leases do not depend on it (only the server's clock counts); comparing logs does", "%s", text)
	}
	if uncertain > clockTolerance {
		return unknown("%s", text)
	}
	return ok("%s", text)
}

func (s *postgresSession) checkClock(ctx context.Context) (Finding, error) {
	return clockFinding(func() (server time.Time, err error) {
		err = s.conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&server)
		return server, err
	})
}

const oldTransaction = 5 * time.Minute

// checkOldestTransaction finds what keeps dead row versions from being removed, and takes-over waiting.
func (s *postgresSession) checkOldestTransaction(ctx context.Context) (Finding, error) {
	var hiddenOnes int
	var pid *int32
	var seconds *float64
	var who *string
	// Of a session that this user may not see the server shows this text instead of the query.
	err := s.conn.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE a.query = '<insufficient privilege>'),
       (array_agg(a.pid ORDER BY a.xact_start) FILTER (WHERE a.xact_start IS NOT NULL))[1],
       extract(epoch FROM clock_timestamp() - min(a.xact_start))::float8,
       (array_agg(concat_ws(', ', 'user ' || a.usename, 'application ' || nullif(a.application_name, ''), a.state)
           ORDER BY a.xact_start) FILTER (WHERE a.xact_start IS NOT NULL))[1]
  FROM pg_catalog.pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()`).Scan(&hiddenOnes, &pid, &seconds, &who)
	if err != nil {
		return Finding{}, err
	}
	if seconds != nil && *seconds > oldTransaction.Seconds() {
		return warning("it keeps dead rows from being removed, and lease rows are rewritten all the time; if it holds a lease, a take-over waits for it",
			"the oldest open transaction has lasted for %s (pid %d, %s)", time.Duration(*seconds)*time.Second, *pid, *who)
	}
	if hiddenOnes > 0 {
		f, err := unknown("this user may not see the transactions of %d other sessions", hiddenOnes)
		f.Hint = "GRANT pg_read_all_stats (or pg_monitor) to this user"
		return f, err
	}
	if seconds == nil {
		return ok("no other transaction is open in this database")
	}
	return ok("the oldest open transaction has lasted for %.1f s", *seconds)
}

// checkPreparedTransactions: what bounds idle transactions does not bound these.
func (s *postgresSession) checkPreparedTransactions(ctx context.Context) (Finding, error) {
	var count int
	var seconds *float64
	err := s.conn.QueryRow(ctx, `
SELECT count(*), extract(epoch FROM clock_timestamp() - min(x.prepared))::float8
  FROM pg_catalog.pg_prepared_xacts x WHERE x.database = current_database()`).Scan(&count, &seconds)
	if err != nil || count == 0 {
		return Finding{Status: FindingOK, Detail: "no prepared transaction is open"}, err
	}
	if *seconds > oldTransaction.Seconds() {
		return warning("nothing ends it by itself: COMMIT PREPARED or ROLLBACK PREPARED", "%d prepared transactions are open, the oldest for %s", count, time.Duration(*seconds)*time.Second)
	}
	return ok("%d prepared transactions are open, the oldest for %.1f s", count, *seconds)
}

func (s *postgresSession) checkIdleTransactions(ctx context.Context) (Finding, error) {
	limit, err := s.number(ctx, "idle_in_transaction_session_timeout")
	if err != nil {
		return Finding{}, err
	}
	if limit == 0 {
		return warning("a fenced transaction that stalls ends with its lease all the same (check, require and publish set it); set one for the others",
			"idle_in_transaction_session_timeout is off")
	}
	return ok("a transaction that stalls ends after %s", time.Duration(limit)*time.Millisecond)
}

// checkKeepalives: how long a client that has vanished without a word keeps its locks.
func (s *postgresSession) checkKeepalives(ctx context.Context) (Finding, error) {
	values := map[string]int64{}
	for _, name := range []string{"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"} {
		value, err := s.number(ctx, name)
		if err != nil {
			return Finding{}, err
		}
		values[name] = value
	}
	idle, interval, count := values["tcp_keepalives_idle"], values["tcp_keepalives_interval"], values["tcp_keepalives_count"]
	if idle == 0 || interval == 0 || count == 0 {
		return unknown("this connection is not TCP, or the server does not know its system's keep-alive settings")
	}
	noticed := time.Duration(idle+interval*count) * time.Second
	text := fmt.Sprintf("a client that vanishes is noticed after %s (tcp_keepalives_idle %d s, interval %d s, count %d; tcp_user_timeout %d ms)",
		noticed, idle, interval, count, values["tcp_user_timeout"])
	if noticed > oldTransaction {
		return warning("its locks last as long: set tcp_keepalives_idle = 60, tcp_keepalives_interval = 10, tcp_keepalives_count = 6", "%s", text)
	}
	return ok("%s", text)
}

func (s *postgresSession) checkIsolation(ctx context.Context) (Finding, error) {
	value, err := s.setting(ctx, "default_transaction_isolation")
	if err != nil || value == "read committed" || value == "read uncommitted" {
		return Finding{Status: FindingOK, Detail: "default_transaction_isolation is " + value}, err
	}
	return warning("callers must repeat the whole transaction at 40001, and policy unexpired is refused; use read committed for fenced work",
		"default_transaction_isolation is %s for this user", value)
}

func (s *postgresSession) checkReadOnly(ctx context.Context) (Finding, error) {
	value, err := s.setting(ctx, "default_transaction_read_only")
	if err != nil || value == "off" {
		return Finding{Status: FindingOK, Detail: "transactions may write"}, err
	}
	return warning("no lease can be taken in such a session", "default_transaction_read_only is on for this user")
}

func (s *postgresSession) checkLockTimeout(ctx context.Context) (Finding, error) {
	limit, err := s.number(ctx, "lock_timeout")
	if err != nil {
		return Finding{}, err
	}
	if limit == 0 {
		return ok("lock_timeout is off; acquire, seize, raise_floor and remove wait 5 s at most")
	}
	return ok("lock_timeout is %s", time.Duration(limit)*time.Millisecond)
}

func (s *postgresSession) checkConnections(ctx context.Context) (Finding, error) {
	var used, limit int
	err := s.conn.QueryRow(ctx, `
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.backend_type = 'client backend' OR a.backend_type IS NULL),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`).Scan(&used, &limit)
	if err != nil {
		return Finding{}, err
	}
	if used*10 > limit*9 {
		return warning("a renewal that finds no connection costs the lease", "%d of %d connections are in use", used, limit)
	}
	return ok("%d of %d connections are in use", used, limit)
}
