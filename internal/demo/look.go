package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/internal/procedures"
)

// status is what lease_status says about a resource.
type status struct {
	State       string
	Generation  int64
	RemainingMS int64
	BlockedBy   *int32
}

// leaseStatus reads the state of a resource's lease.
func leaseStatus(ctx context.Context, conn *pgx.Conn, resource string) (status, error) {
	rows, err := conn.Query(ctx,
		`SELECT state, generation, remaining_ms, blocked_by_pid FROM fence.lease_status WHERE resource = $1`, resource)
	if err != nil {
		return status{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[status])
}

// awaitStatus polls the state of a lease until it is as wanted.
func (s *story) awaitStatus(ctx context.Context, resource, what string, wanted func(status) bool) status {
	if s.over(ctx) {
		return status{}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errors.New("it did not happen"))
	defer cancel()
	var seen status
	err := poll(ctx, 10*time.Millisecond, func() (yes bool, err error) {
		seen, err = leaseStatus(ctx, s.conn, resource)
		return err == nil && wanted(seen), err
	})
	if err != nil {
		s.fails(ActorDatabase, "lease_status", fmt.Errorf("wait until %s: %w", what, err))
	}
	return seen
}

// awaitExpiry waits until the database says that the lease has run out.
func (s *story) awaitExpiry(ctx context.Context, t procedures.Token, shows string) {
	seen := s.awaitStatus(ctx, t.Resource, "the lease has run out", func(now status) bool { return now.State == outcomeExpired })
	s.tell(observed(t, seen, shows), outcome(outcomeExpired))
}

// awaitBlocker waits as awaitExpiry does. An open transaction must hold the lease at that moment.
func (s *story) awaitBlocker(ctx context.Context, t procedures.Token, shows string) {
	seen := s.awaitStatus(ctx, t.Resource, "the lease has run out", func(now status) bool { return now.State == outcomeExpired })
	s.tell(observed(t, seen, shows), outcome(outcomeExpired))
	if s.err == nil && seen.BlockedBy == nil {
		s.differs("a lease that A's open transaction holds", "no such transaction")
	}
}

// awaitRemaining waits until no more than that is left of a lease. It is part of the work that A pretends to do.
func (s *story) awaitRemaining(ctx context.Context, t procedures.Token, rest time.Duration) {
	s.awaitStatus(ctx, t.Resource, "the lease has almost run out", func(now status) bool {
		return now.RemainingMS <= rest.Milliseconds()
	})
}

// observed is a step in which the database tells the state of a lease.
func observed(t procedures.Token, seen status, shows string) Step {
	return Step{
		Actor: ActorDatabase, Call: "lease_status", Outcome: seen.State, Generation: &seen.Generation,
		Resource: &t.Resource, Shows: shows,
	}
}

// published looks at the result that the database holds: it must be the one of the token.
func (s *story) published(ctx context.Context, t procedures.Token) {
	if s.over(ctx) {
		return
	}
	var generation, revision int64
	var owner string
	err := s.conn.QueryRow(ctx, `SELECT owner, generation, revision FROM fence.publications WHERE resource = $1`, t.Resource).
		Scan(&owner, &generation, &revision)
	if err != nil {
		s.fails(ActorDatabase, "publications", failed("read the result", err))
		return
	}
	s.tell(Step{
		Actor: ActorDatabase, Call: "publications", Outcome: outcomeKept, Generation: &generation,
		Resource: &t.Resource, Owner: &owner, Shows: "the report is still B's",
	}, outcome(outcomeKept))
	if s.err == nil && (owner != t.Owner || generation != t.Generation || revision != 1) {
		s.differs(fmt.Sprintf("revision 1 by %s, generation %d", t.Owner, t.Generation),
			fmt.Sprintf("revision %d by %s, generation %d", revision, owner, generation))
	}
}

// count is how often a kind of call was refused for a reason.
type count struct {
	Reason      string
	Operation   string
	Occurrences int64
	shows       string
}

func (c count) String() string {
	if c.Operation == "" {
		return "nothing else"
	}
	return fmt.Sprintf("%d %s %s", c.Occurrences, c.Operation, c.Reason)
}

// counts reads the demo's own refusals, in a fixed order.
func (s *story) counts(ctx context.Context) []count {
	if s.over(ctx) {
		return nil
	}
	rows, err := s.conn.Query(ctx, `
		SELECT reason, operation, sum(occurrences)::bigint
		  FROM fence.rejections
		 WHERE resource = ANY($1)
		 GROUP BY reason, operation
		 ORDER BY reason COLLATE "C", operation COLLATE "C"`, s.names.resources())
	if err != nil {
		s.fails(ActorDatabase, "rejections", failed("count the refusals", err))
		return nil
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c count, err error) {
		return c, row.Scan(&c.Reason, &c.Operation, &c.Occurrences)
	})
	if err != nil {
		s.fails(ActorDatabase, "rejections", failed("count the refusals", err))
	}
	return found
}

// compareCount tells what was counted, and compares it.
func (s *story) compareCount(want, found count) {
	shows := want.shows
	want.shows = ""
	if s.err != nil {
		return
	}
	s.tell(Step{
		Actor: ActorDatabase, Call: "rejections", Outcome: outcomeCounted, Reason: optional(found.Reason),
		Operation: optional(found.Operation), Occurrences: &found.Occurrences, Shows: shows,
	}, outcome(outcomeCounted))
	if s.err == nil && found != want {
		s.differs(want.String(), found.String())
	}
}

// at returns an element, or nothing where there is none.
func at(counts []count, i int) count {
	if i < len(counts) {
		return counts[i]
	}
	return count{}
}
