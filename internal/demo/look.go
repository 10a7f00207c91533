package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/procedures"
)

// status is what lease_status says about a resource.
type status struct {
	State       string
	Generation  int64
	Owner       *string
	RemainingMS int64
	BlockedBy   *int32
}

var (
	errNoLease  = errors.New("there is no such lease")
	errNoResult = errors.New("there is no result")
)

// leaseStatus reads the state of a resource's lease.
func leaseStatus(ctx context.Context, session client.Session, resource string) (status, error) {
	found, err := client.Select[status](ctx, session, client.Selection{
		View:    "lease_status",
		Columns: client.Columns("state", "generation", "owner", "remaining_ms", "blocked_by_pid"),
		Where:   []client.Condition{client.Equals("resource", resource)},
	})
	if err != nil {
		return status{}, err
	}
	if len(found) == 0 {
		return status{}, errNoLease
	}
	return found[0], nil
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
		seen, err = leaseStatus(ctx, s.session, resource)
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
	type result struct {
		Owner                string
		Generation, Revision int64
	}
	found, err := client.Select[result](ctx, s.session, client.Selection{
		View:    "publications",
		Columns: client.Columns("owner", "generation", "revision"),
		Where:   []client.Condition{client.Equals("resource", t.Resource)},
	})
	if err != nil || len(found) != 1 {
		s.fails(ActorDatabase, "publications", failed("read the result", cmp.Or(err, errNoResult)))
		return
	}
	now := found[0]
	s.tell(Step{
		Actor: ActorDatabase, Call: "publications", Outcome: outcomeKept, Generation: &now.Generation,
		Resource: &t.Resource, Owner: &now.Owner, Shows: "the report is still B's",
	}, outcome(outcomeKept))
	if s.err == nil && (now.Owner != t.Owner || now.Generation != t.Generation || now.Revision != 1) {
		s.differs(fmt.Sprintf("revision 1 by %s, generation %d", t.Owner, t.Generation),
			fmt.Sprintf("revision %d by %s, generation %d", now.Revision, now.Owner, now.Generation))
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

// counted is a row of what the database counted.
type counted struct {
	Reason      string
	Operation   string
	Occurrences int64
}

// counts reads the demo's own refusals, in a fixed order.
func (s *story) counts(ctx context.Context) []count {
	if s.over(ctx) {
		return nil
	}
	found, err := client.Select[counted](ctx, s.session, client.Selection{
		View:    "rejections",
		Columns: append(client.Columns("reason", "operation"), client.Sum("occurrences")),
		Where:   []client.Condition{client.Among("resource", s.names.resources()...)},
		GroupBy: []string{"reason", "operation"},
	})
	if err != nil {
		s.fails(ActorDatabase, "rejections", failed("count the refusals", err))
		return nil
	}
	slices.SortFunc(found, func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Operation, b.Operation))
	})
	counts := make([]count, len(found))
	for i, c := range found {
		counts[i] = count{Reason: c.Reason, Operation: c.Operation, Occurrences: c.Occurrences}
	}
	return counts
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
