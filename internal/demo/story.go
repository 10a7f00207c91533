package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/procedures"
)

// ttl of the leases in the story: long enough for the calls that must come before its end, short enough to wait for.
const ttl = 1200 * time.Millisecond

// Outcomes of steps that are no routine's.
const (
	outcomeStopped = "stopped"
	outcomeRunning = "running"
	outcomeExpired = "expired"
	outcomeKept    = "kept"
	outcomeCounted = "counted"
)

// story is the play in progress. After a failure its methods do nothing, so that a scene reads from top to bottom.
type story struct {
	names    names
	session  client.Session // of the demo itself: it only looks
	endsIdle bool           // the server ends a session that stalls in a fenced transaction
	teller   Teller
	began    time.Time
	a, b     *worker
	scene    string
	steps    []Step
	err      error
}

func (s *story) takenOver(ctx context.Context) {
	text := "A works on a report under a lease of 1.2 s, and stalls just before it publishes. The lease runs " +
		"out. B takes over and publishes. Then A wakes up, and publishes too."
	if s.a.told {
		text += " (Processes cannot be stopped on this system: the worker is told to stall.)"
	}
	s.open("1. A stalls and is overtaken", text)
	held := s.acquire(ctx, s.a, resourceTakenOver, says("A's alone until the lease runs out"))
	s.stall(ctx, s.a)
	s.queue(ctx, s.a, publish(held, "the report of A"))
	s.awaitExpiry(ctx, held, "from now on another worker may take over")
	next := s.acquire(ctx, s.b, resourceTakenOver, says("B takes over, with a higher generation"))
	s.newer(held, next)
	s.call(ctx, s.b, publish(next, "the report of B"), accepted(), says("the report is B's"))
	s.proceed(ctx, s.a)
	s.finish(ctx, s.a, publish(held, "the report of A"), rejected(procedures.Superseded), func(r reply) string {
		return fmt.Sprintf("sent while stalled; now generation is %s", known(r.ObservedGeneration))
	})
	s.published(ctx, next)
}

func (s *story) late(ctx context.Context) {
	s.open("2. A is late, and nobody has taken over",
		"The lease decides when another worker may take over; the generation decides whose result counts.")
	held := s.acquire(ctx, s.a, resourceLate, says("a lease of 1.2 s again"))
	s.stall(ctx, s.a)
	s.awaitExpiry(ctx, held, "anybody may take over, but nobody does")
	s.proceed(ctx, s.a)
	s.call(ctx, s.a, publish(held, "a late report"), accepted().late(), func(r reply) string {
		return fmt.Sprintf("%s ms late, and it counts", known(r.LateMS))
	})
	strict := publish(held, "a later report")
	strict.Policy = procedures.Unexpired
	s.call(ctx, s.a, strict, rejected(procedures.Expired), says("but not under the strict policy"))
}

func (s *story) fenced(ctx context.Context) {
	if !s.endsIdle {
		s.fencedOnly(ctx)
		return
	}
	s.open("3. A stalls inside a fenced transaction",
		"A checks its token in a transaction of its own. What it writes there is fenced: the check keeps "+
			"others from taking over until A commits. A stalls before it does, but not in the way for ever.")
	held := s.acquire(ctx, s.a, resourceFenced, says("a lease of 1.2 s again"))
	// Shortly before the end: then the lease runs out well before the server ends the idle session, which is a
	// ttl after the check, and the wait in between is there to see.
	s.awaitRemaining(ctx, held, ttl/4)
	s.call(ctx, s.a, command{Call: callBegin}, outcome(outcomeBegun), says("A's own transaction"))
	check := command{Call: callCheck, Resource: held.Resource, Owner: held.Owner, Generation: held.Generation}
	s.call(ctx, s.a, check, outcome(procedures.OK), says("A may write: B cannot come in between"))
	s.stall(ctx, s.a)
	s.awaitBlocker(ctx, held, "but A's open transaction holds off B")
	next := s.acquire(ctx, s.b, resourceFenced, func(r reply) string {
		return fmt.Sprintf("waited %d ms, then A's session ended", r.TookMS)
	})
	s.newer(held, next)
	s.call(ctx, s.b, publish(next, "the report of B"), accepted(), says("B's result is in"))
	s.proceed(ctx, s.a)
	s.call(ctx, s.a, command{Call: callCommit}, outcome(outcomeFailed), says("A's writes were rolled back"))
	renew := command{
		Call: callRenew, Resource: held.Resource, Owner: held.Owner, Generation: held.Generation, TTLMS: ttl.Milliseconds(),
	}
	s.call(ctx, s.a, renew, refused(procedures.Superseded), says("A connects again, and learns it"))
}

// fencedOnly is fenced where the server does not end a session that stalls: the take-over waits until A commits.
func (s *story) fencedOnly(ctx context.Context) {
	s.open("3. A stalls inside a fenced transaction",
		"A checks its token in a transaction of its own. What it writes there is fenced: the check keeps "+
			"others from taking over until A commits. A stalls before it does, and B waits, for five seconds at most.")
	held := s.acquire(ctx, s.a, resourceFenced, says("a lease of 1.2 s again"))
	s.call(ctx, s.a, command{Call: callBegin}, outcome(outcomeBegun), says("A's own transaction"))
	check := command{Call: callCheck, Resource: held.Resource, Owner: held.Owner, Generation: held.Generation}
	s.call(ctx, s.a, check, outcome(procedures.OK), says("A may write: B cannot come in between"))
	s.stall(ctx, s.a)
	s.awaitExpiry(ctx, held, "but A's open transaction holds off B")
	takeOver := command{Call: callAcquire, Resource: held.Resource, Owner: s.b.owner, TTLMS: ttl.Milliseconds()}
	s.queue(ctx, s.b, takeOver)
	s.proceed(ctx, s.a)
	s.call(ctx, s.a, command{Call: callCommit}, outcome(outcomeCommitted), says("A's writes count: nobody came in between"))
	r := s.finish(ctx, s.b, takeOver, outcome(procedures.Acquired), func(r reply) string {
		return fmt.Sprintf("waited %d ms for A's commit", r.TookMS)
	})
	next := procedures.Token{Resource: held.Resource, Owner: s.b.owner}
	if r.Generation != nil {
		next.Generation = *r.Generation
	}
	s.newer(held, next)
	s.call(ctx, s.b, publish(next, "the report of B"), accepted(), says("B's result is in"))
	renew := command{
		Call: callRenew, Resource: held.Resource, Owner: held.Owner, Generation: held.Generation, TTLMS: ttl.Milliseconds(),
	}
	s.call(ctx, s.a, renew, refused(procedures.Superseded), says("and A learns that it is over"))
}

// counted ends the story with what the database counted.
func (s *story) counted(ctx context.Context) {
	s.open("4. What the database counted",
		"Each refusal has a cause, because causes ask for different action.")
	want := []count{
		{procedures.Expired, callPublish, 1, "the work outlived its lease"},
		{procedures.Superseded, callPublish, 1, "the fence at work"},
		{procedures.Superseded, callRenew, 1, "and here"},
	}
	found := s.counts(ctx)
	for i := range max(len(want), len(found)) {
		s.compareCount(at(want, i), at(found, i))
	}
}

// The steps that the scenes are made of.

func (s *story) acquire(ctx context.Context, w *worker, resource string, shows func(reply) string) procedures.Token {
	token := procedures.Token{Resource: s.names.of(resource), Owner: w.owner}
	r := s.call(ctx, w, command{Call: callAcquire, Resource: token.Resource, Owner: token.Owner, TTLMS: ttl.Milliseconds()},
		outcome(procedures.Acquired), shows)
	if r.Generation != nil {
		token.Generation = *r.Generation
	}
	return token
}

// call makes a call and waits for its answer.
func (s *story) call(ctx context.Context, w *worker, c command, want expectation, shows func(reply) string) reply {
	s.queue(ctx, w, c)
	return s.finish(ctx, w, c, want, shows)
}

// queue sends a call to a worker, which may be stalled.
func (s *story) queue(ctx context.Context, w *worker, c command) {
	if s.over(ctx) {
		return
	}
	if err := w.send(c); err != nil {
		s.fails(w.name, c.Call, err)
	}
}

// finish waits for the answer to a call that was queued.
func (s *story) finish(ctx context.Context, w *worker, c command, want expectation, shows func(reply) string) reply {
	if s.over(ctx) {
		return reply{}
	}
	r, err := w.answer(ctx, c.Call)
	if err != nil {
		s.fails(w.name, c.Call, err)
		return reply{}
	}
	step := Step{
		Actor: w.name, Call: c.Call, Policy: optional(c.Policy), Outcome: r.Outcome, Reason: r.Reason,
		Generation: r.Generation, LateMS: r.LateMS, ObservedGeneration: r.ObservedGeneration,
		Resource: optional(c.Resource), Owner: optional(c.Owner), PID: &w.process.Pid, TookMS: &r.TookMS, Shows: shows(r),
	}
	s.tell(step, want)
	return r
}

func (s *story) stall(ctx context.Context, w *worker) {
	if s.over(ctx) {
		return
	}
	step := Step{Actor: w.name, Call: stallCall, Outcome: outcomeStopped, PID: &w.process.Pid}
	step.Shows = fmt.Sprintf("process %d stands still (state T)", w.process.Pid)
	if w.told {
		step.Call, step.Outcome = callStall, outcomeStalled
		step.Shows = fmt.Sprintf("process %d is told to stall", w.process.Pid)
	}
	if err := w.stall(ctx); err != nil {
		s.fails(w.name, step.Call, err)
		return
	}
	s.tell(step, outcome(step.Outcome))
}

func (s *story) proceed(ctx context.Context, w *worker) {
	if s.over(ctx) {
		return
	}
	step := Step{Actor: w.name, Call: continueCall, Outcome: outcomeRunning, PID: &w.process.Pid}
	step.Shows = "A goes on as if nothing had happened"
	if w.told {
		step.Call = callContinue
	}
	if err := w.proceed(ctx); err != nil {
		s.fails(w.name, step.Call, err)
		return
	}
	s.tell(step, outcome(outcomeRunning))
}

// over tells whether the story has ended, with an error or with its context.
func (s *story) over(ctx context.Context) bool {
	if s.err == nil && ctx.Err() != nil {
		s.err = context.Cause(ctx)
	}
	return s.err != nil
}

// newer makes sure that the second acquisition has a higher generation than the first.
func (s *story) newer(first, second procedures.Token) {
	if s.err == nil && second.Generation <= first.Generation {
		s.differs("a generation above "+number(first.Generation), number(second.Generation))
	}
}

// tell records a step and compares it with what was expected.
func (s *story) tell(step Step, want expectation) {
	if s.err != nil {
		return
	}
	step.Number, step.Scene, step.ElapsedMS = len(s.steps)+1, s.scene, time.Since(s.began).Milliseconds()
	s.steps = append(s.steps, step)
	if s.err = s.teller.Step(step); s.err == nil && !want.met(step) {
		s.differs(want.String(), step.result())
	}
}

// differs ends the story with its last step.
func (s *story) differs(expected, found string) {
	s.err = &Difference{Step: s.steps[len(s.steps)-1], Expected: expected, Found: found}
}

// fails ends the story with a step that could not be made.
func (s *story) fails(actor, call string, err error) {
	s.err = because(kindOf(err), fmt.Sprintf("step %d (%s: %s)", len(s.steps)+1, actor, call), err)
}

func (s *story) open(title, text string) {
	if s.err == nil {
		s.scene = title
		s.err = s.teller.Scene(title, text)
	}
}

// end ends the workers.
func (s *story) end() {
	for _, w := range []*worker{s.a, s.b} {
		if w != nil {
			w.end()
		}
	}
}

// expectation is what a step must come to.
type expectation struct {
	outcome string
	reason  string // "": whatever it is
	isLate  bool
}

func outcome(word string) expectation { return expectation{outcome: word} }
func accepted() expectation           { return outcome(procedures.Accepted) }
func rejected(reason string) expectation {
	return expectation{outcome: procedures.Rejected, reason: reason}
}
func refused(reason string) expectation {
	return expectation{outcome: procedures.Refused, reason: reason}
}

func (e expectation) late() expectation {
	e.isLate = true
	return e
}

func (e expectation) met(s Step) bool {
	return s.Outcome == e.outcome && (e.reason == "" || s.Reason != nil && *s.Reason == e.reason) &&
		(!e.isLate || s.LateMS != nil && *s.LateMS > 0)
}

func (e expectation) String() string {
	switch {
	case e.isLate:
		return e.outcome + " with late_ms"
	case e.reason != "":
		return e.outcome + " " + e.reason
	}
	return e.outcome
}

func publish(t procedures.Token, payload string) command {
	return command{
		Call: callPublish, Resource: t.Resource, Owner: t.Owner, Generation: t.Generation,
		Policy: procedures.UntilSuperseded, Payload: fmt.Sprintf("%q", payload),
	}
}

func says(text string) func(reply) string { return func(reply) string { return text } }

func known(n *int64) string {
	if n == nil {
		return "?"
	}
	return number(*n)
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
