package integration

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

// Database is a behaviour's own database, empty at first, with what a behaviour does to it and reads from it.
type Database struct {
	backend
	t        *testing.T
	e        engine
	ctx      context.Context
	sessions atomic.Int64
}

// patience bounds one behaviour: what hangs is reported, not waited for. Where a rule has been taken out on
// purpose some will.
func patience() time.Duration {
	if os.Getenv(envMutation) != "" {
		return 15 * time.Second
	}
	return 2 * time.Minute
}

func newDatabase(t *testing.T, e engine) *Database {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	t.Cleanup(cancel)
	return &Database{backend: e.lend(t), t: t, e: e, ctx: ctx}
}

// session opens a connection of its own.
func (d *Database) session() *session {
	d.t.Helper()
	name := fmt.Sprintf("session %d", d.sessions.Add(1))
	conn, err := d.connect(d.ctx, name)
	require.NoError(d.t, err, "connect %s", name)
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.close(ctx) // the server may have closed it before, as the behaviour wanted
	})
	return &session{connection: conn, name: name, db: d, t: d.t}
}

func (d *Database) manySessions(n int) (sessions []*session) {
	d.t.Helper()
	for range n {
		sessions = append(sessions, d.session())
	}
	return sessions
}

// session is one client. Its methods fail the test where something goes wrong that the behaviour does not
// expect.
type session struct {
	connection
	name string
	db   *Database
	t    *testing.T
}

// gets makes a call and demands its verdict.
func (s *session) gets(want string, c call) answer {
	s.t.Helper()
	got, err := c.make(s.db.ctx, s.connection)
	demand(s.t, want, c, got, err)
	return got
}

// asks makes a call that must not fail, whatever the verdict.
func (s *session) asks(c call) answer {
	s.t.Helper()
	got, err := c.make(s.db.ctx, s.connection)
	require.NoError(s.t, err, c.name)
	return got
}

func demand(t *testing.T, want string, c call, got answer, err error) {
	t.Helper()
	if verdict := verdict(got, err); verdict != want {
		require.Equal(t, want, verdict, "%s answered %+v (error: %v)", c.name, got, err)
	}
}

// takes acquires a resource for a minute, with the session's name as the owner, and returns the token.
func (s *session) takes(resource string, options ...func(*procedures.AcquireParams)) procedures.Token {
	s.t.Helper()
	got := s.gets("acquired", acquire(resource, s.name, options...))
	return procedures.Token{Resource: resource, Owner: s.name, Generation: *got.Generation}
}

// waitsOn starts a call and returns when it waits for a lock.
func (s *session) waitsOn(c call) *pending {
	s.t.Helper()
	p := s.starts(c)
	deadline := time.Now().Add(10 * time.Second)
	for {
		waits, err := s.db.waits(s.db.ctx, s.name)
		require.NoError(s.t, err)
		if waits {
			return p
		}
		select {
		case <-p.done:
			require.FailNow(s.t, "did not wait", "%s answered %q without waiting for a lock", c.name, verdict(p.got, p.err))
		case <-time.After(2 * time.Millisecond):
		}
		require.True(s.t, time.Now().Before(deadline), "%s neither waits for a lock nor answers", c.name)
	}
}

// starts makes a call in the background.
func (s *session) starts(c call) *pending {
	p := &pending{t: s.t, call: c, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.got, p.err = c.make(s.db.ctx, s.connection)
	}()
	return p
}

// pending is a call under way.
type pending struct {
	t    *testing.T
	call call
	done chan struct{}
	got  answer
	err  error
}

// gets waits for the answer and demands its verdict.
func (p *pending) gets(want string) answer {
	p.t.Helper()
	<-p.done
	demand(p.t, want, p.call, p.got, p.err)
	return p.got
}

// begins starts a transaction, at READ COMMITTED where no level is given.
func (s *session) begins(level ...isolation) *session {
	s.t.Helper()
	if len(level) == 0 {
		level = []isolation{readCommitted}
	}
	require.NoError(s.t, s.begin(s.db.ctx, level[0]))
	return s
}

func (s *session) commits() {
	s.t.Helper()
	require.NoError(s.t, s.commit(s.db.ctx))
}

func (s *session) rollsBack() {
	s.t.Helper()
	require.NoError(s.t, s.rollback(s.db.ctx))
}

func (s *session) saves(savepoint string) {
	s.t.Helper()
	require.NoError(s.t, s.savepoint(s.db.ctx, savepoint))
}

func (s *session) rollsBackTo(savepoint string) {
	s.t.Helper()
	require.NoError(s.t, s.rollbackTo(s.db.ctx, savepoint))
}

// locks holds rows of a resource, one in each of the tables, until the transaction ends, and changes nothing.
func (s *session) locks(resource string, tables ...string) {
	s.t.Helper()
	for _, table := range tables {
		require.NoError(s.t, s.lockRow(s.db.ctx, table, resource))
	}
}

// The two rows of a lease: who, and until when.
const (
	lease     = "lease"
	leaseTerm = "lease_term"
)

// impatient makes the session's waits for locks fail as busy after a moment: for calls that must not wait.
func (s *session) impatient() *session {
	s.t.Helper()
	require.NoError(s.t, s.boundLockWaits(s.db.ctx, 250*time.Millisecond))
	return s
}

func (s *session) does(statement string, arguments ...any) {
	s.t.Helper()
	require.NoError(s.t, s.execute(s.db.ctx, statement, arguments...))
}

func (s *session) sets(name, value string) *session {
	s.t.Helper()
	require.NoError(s.t, s.change(s.db.ctx, name, value))
	return s
}

func (s *session) has(name string) string {
	s.t.Helper()
	value, err := s.setting(s.db.ctx, name)
	require.NoError(s.t, err)
	return value
}

// now reads the database's clock.
func (d *Database) now() time.Time {
	d.t.Helper()
	now, err := d.clock(d.ctx)
	require.NoError(d.t, err)
	return now
}

// waitUntil returns when the database's clock has passed a time, which is near.
func (d *Database) waitUntil(passed time.Time) {
	d.t.Helper()
	for !d.now().After(passed) {
		time.Sleep(time.Millisecond)
	}
}

// age moves everything that happened to a resource into the past, its lease's end included. Only columns
// of times that are set change.
func (d *Database) age(resource string, by time.Duration) {
	d.t.Helper()
	for table, columns := range map[string][]string{
		"lease":            {"acquired_at", "released_at"},
		"lease_term":       {"lease_until", "released_at", "renewed_at"},
		"publication":      {"published_at"},
		"publication_key":  {"published_at"},
		"late_publication": {"published_at"},
		"rejection":        {"first_at", "last_at", "observed_at"},
		"intervention":     {"performed_at"},
	} {
		require.NoError(d.t, d.shift(d.ctx, table, resource, by, columns...))
	}
}

// expire moves a resource's lease into the past, so far that it has run out.
func (d *Database) expire(resource string) {
	d.t.Helper()
	by := d.row(resource).LeaseUntil.Sub(d.now()) + time.Second
	require.NoError(d.t, d.shift(d.ctx, "lease", resource, by, "acquired_at"))
	require.NoError(d.t, d.shift(d.ctx, "lease_term", resource, by, "lease_until", "renewed_at"))
}

// endLease lets a resource's lease run out at this moment without touching anything else: also while a
// fenced transaction holds the row that says who.
func (d *Database) endLease(resource string) {
	d.t.Helper()
	by := d.row(resource).LeaseUntil.Sub(d.now())
	require.NoError(d.t, d.shift(d.ctx, "lease_term", resource, by, "lease_until"))
}

// row is what the two rows of a lease hold.
type row struct {
	Generation      int64
	Owner           *string
	AcquiredAt      time.Time
	ReleasedAt      *time.Time
	Floor           int64
	Accepted        int64
	Revision        int64
	TermGeneration  int64
	TermOwner       *string
	TTLMS           int64
	LeaseUntil      time.Time
	TermReleasedAt  *time.Time
	RenewedAt       time.Time
	Renewals        int64
	AttributesAsSet *string
}

// row reads a lease, which must exist.
func (d *Database) row(resource string) row {
	d.t.Helper()
	var found []row
	d.reads(func(scan func(...any) error) error {
		var r row
		err := scan(&r.Generation, &r.Owner, &r.AcquiredAt, &r.ReleasedAt, &r.Floor, &r.Accepted, &r.Revision,
			&r.TermGeneration, &r.TermOwner, &r.TTLMS, &r.LeaseUntil, &r.TermReleasedAt, &r.RenewedAt, &r.Renewals,
			&r.AttributesAsSet)
		found = append(found, r)
		return err
	}, `SELECT l.generation, l.owner, l.acquired_at, l.released_at, l.floor, l.accepted_generation, l.revision,
	           t.generation, t.owner, t.ttl_ms, t.lease_until, t.released_at, t.renewed_at, t.renewals,
	           t.attributes
	      FROM fence.lease l JOIN fence.lease_term t ON t.resource = l.resource
	     WHERE l.resource = $1`, resource)
	require.Len(d.t, found, 1, "lease of %q", resource)
	return found[0]
}

// publication is a resource's current result.
type publication struct {
	Revision    int64
	Generation  int64
	Owner       string
	ContentType string
	Payload     string
	SourceAsOf  *time.Time
	PublishedAt time.Time
	LateMS      *int64
}

// published reads a resource's current result; there is none when nothing was published.
func (d *Database) published(resource string) (found []publication) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error {
		var p publication
		err := scan(&p.Revision, &p.Generation, &p.Owner, &p.ContentType, &p.Payload, &p.SourceAsOf, &p.PublishedAt, &p.LateMS)
		found = append(found, p)
		return err
	}, `SELECT revision, generation, owner, content_type, payload, source_as_of, published_at, late_ms
	      FROM fence.publications WHERE resource = $1`, resource)
	return found
}

// rejection is one counted refusal.
type rejection struct {
	Operation   string
	Reason      string
	Generation  int64
	Owner       string
	Occurrences int64
	FirstAt     time.Time
	LastAt      time.Time
	procedures.Observation
}

// rejections reads what was refused for a resource, oldest first.
func (d *Database) rejections(resource string) (found []rejection) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error {
		var r rejection
		err := scan(&r.Operation, &r.Reason, &r.Generation, &r.Owner, &r.Occurrences, &r.FirstAt, &r.LastAt,
			&r.ObservedGeneration, &r.ObservedOwner, &r.ObservedLeaseUntil, &r.ObservedAt)
		found = append(found, r)
		return err
	}, `SELECT operation, reason, generation, owner, occurrences, first_at, last_at,
	           observed_generation, observed_owner, observed_lease_until, observed_at
	      FROM fence.rejections WHERE resource = $1 ORDER BY first_at`, resource)
	return found
}

// count counts the rows of a table or view of the schema fence.
func (d *Database) count(table string) (n int64) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error { return scan(&n) }, "SELECT count(*) FROM fence."+table)
	return n
}

// reads runs a query, outside of all sessions.
func (d *Database) reads(row func(scan func(...any) error) error, query string, arguments ...any) {
	d.t.Helper()
	require.NoError(d.t, d.read(d.ctx, row, query, arguments...))
}

// does runs a statement, outside of all sessions.
func (d *Database) does(statement string, arguments ...any) {
	d.t.Helper()
	require.NoError(d.t, d.execute(d.ctx, statement, arguments...))
}

// together runs one function for each session at the same moment, and returns when all have ended.
func together(sessions []*session, run func(i int, s *session)) {
	barrier := make(chan struct{})
	ended := make(chan struct{}, len(sessions))
	for i, s := range sessions {
		go func() {
			defer func() { ended <- struct{}{} }()
			<-barrier
			run(i, s)
		}()
	}
	runtime.Gosched()
	close(barrier)
	for range sessions {
		<-ended
	}
}

func repeat(value string, times int) (values []string) {
	for range times {
		values = append(values, value)
	}
	return values
}

// value shows what a pointer of an answer points to.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// tenYears is the longest duration, in milliseconds.
const tenYears int64 = 315_576_000_000
