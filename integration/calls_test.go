package integration

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/fencectl/fencectl/internal/procedures"
)

// A call is one routine with its arguments, ready to be made by any session.
type call struct {
	name string
	make func(ctx context.Context, c connection) (answer, error)
}

// answer is the union of all routines' result columns, so that one verb serves every call. What a routine
// does not return is nil.
type answer struct {
	Outcome string
	Reason  string
	procedures.Observation

	Generation    *int64
	LeaseUntil    *time.Time
	RemainingMS   *int64
	Holder        *string
	Attributes    json.RawMessage
	PublishedAt   *time.Time
	AttemptedAt   *time.Time
	Revision      *int64
	LateMS        *int64
	PreviousOwner *string
	FloorBefore   *int64
	FloorAfter    *int64
	Certain       *bool
	Pruned        map[string]int64
}

// verdict is an answer or a failure in a few words: "acquired", "rejected: superseded", "busy",
// "invalid_argument: ttl_ms".
func verdict(got answer, err error) string {
	if err != nil {
		failure := procedures.Classify(err)
		switch {
		case failure.Kind == procedures.KindRefused:
			return "refused: " + detailOf(err).Reason
		case failure.Argument != "":
			return string(failure.Kind) + ": " + failure.Argument
		}
		return string(failure.Kind)
	}
	if got.Reason != "" {
		return got.Outcome + ": " + got.Reason
	}
	return got.Outcome
}

// detailOf reads what require puts into the detail of its error.
func detailOf(err error) (detail struct {
	Reason string `json:"reason"`
	procedures.Observation
}) {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		_ = json.Unmarshal([]byte(server.Detail), &detail) // a malformed detail is an empty reason: no verdict expects it
	}
	// T-SQL errors have a message and nothing else to put it into.
	var numbered mssql.Error
	if errors.As(err, &numbered) && numbered.Number == 51100 {
		if at := strings.LastIndex(numbered.Message, ` {"reason":`); at >= 0 {
			_ = json.Unmarshal([]byte(numbered.Message[at:]), &detail) // as above
		}
	}
	return detail
}

func reason(r *string) string {
	if r == nil {
		return ""
	}
	return *r
}

// acquire asks for a lease of a minute.
func acquire(resource, owner string, options ...func(*procedures.AcquireParams)) call {
	p := procedures.AcquireParams{Resource: resource, Owner: owner, TTLMS: minute}
	for _, option := range options {
		option(&p)
	}
	return call{"acquire", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Acquire(ctx, p)
		return answer{
			Outcome: got.Outcome, Generation: got.Generation, LeaseUntil: &got.LeaseUntil,
			RemainingMS: &got.RemainingMS, Holder: got.Holder, Attributes: got.HolderAttributes,
		}, err
	}}
}

// minute is the ttl of leases whose end does not matter to the behaviour, in milliseconds.
const minute int64 = 60_000

func lasting(ms int64) func(*procedures.AcquireParams) {
	return func(p *procedures.AcquireParams) { p.TTLMS = ms }
}

func requested(id uuid.UUID) func(*procedures.AcquireParams) {
	return func(p *procedures.AcquireParams) { p.RequestID = &id }
}

func saying(attributes string) func(*procedures.AcquireParams) {
	return func(p *procedures.AcquireParams) { p.Attributes = json.RawMessage(attributes) }
}

// renew asks for another minute.
func renew(token procedures.Token) call { return renewFor(token, minute) }

func renewFor(token procedures.Token, ttlMS int64) call {
	return call{"renew", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Renew(ctx, token, ttlMS)
		return answer{
			Outcome: got.Outcome, Reason: reason(got.Reason), Observation: got.Observation,
			LeaseUntil: got.LeaseUntil, RemainingMS: got.RemainingMS,
		}, err
	}}
}

func release(token procedures.Token) call {
	return call{"release", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Release(ctx, token)
		return answer{Outcome: got.Outcome, Reason: reason(got.Reason), Observation: got.Observation}, err
	}}
}

func publish(token procedures.Token, payload string, options ...func(*procedures.PublishParams)) call {
	p := procedures.PublishParams{Token: token, Payload: payload}
	for _, option := range options {
		option(&p)
	}
	return call{"publish", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Publish(ctx, p)
		return answer{
			Outcome: got.Outcome, Reason: reason(got.Reason), Observation: got.Observation,
			PublishedAt: got.PublishedAt, Revision: got.Revision, LateMS: got.LateMS, AttemptedAt: &got.AttemptedAt,
		}, err
	}}
}

func keyed(operationKey string) func(*procedures.PublishParams) {
	return func(p *procedures.PublishParams) { p.OperationKey = &operationKey }
}

func ofType(contentType string) func(*procedures.PublishParams) {
	return func(p *procedures.PublishParams) { p.ContentType = contentType }
}

func whileUnexpired(p *procedures.PublishParams) { p.Policy = procedures.Unexpired }

func thenRelease(p *procedures.PublishParams) { p.ThenRelease = true }

func fromSource(asOf time.Time, maxAgeMS int64) func(*procedures.PublishParams) {
	return func(p *procedures.PublishParams) { p.SourceAsOf, p.MaxSourceAgeMS = &asOf, &maxAgeMS }
}

// check and requires take a policy; without one it is until_superseded.
func check(token procedures.Token, policy ...string) call {
	return call{"check", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Check(ctx, token, first(policy))
		return answer{Outcome: got.Outcome, Reason: reason(got.Reason), Observation: got.Observation, LateMS: got.LateMS}, err
	}}
}

// requires is the routine require, whose name is taken by the assertions.
func requires(token procedures.Token, policy ...string) call {
	return call{"require", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Require(ctx, token, first(policy))
		if err != nil {
			return answer{Observation: detailOf(err).Observation}, err
		}
		return answer{Outcome: got.Outcome, Reason: reason(got.Reason), Observation: got.Observation, LateMS: got.LateMS}, nil
	}}
}

// diagnose's outcome is its reason: it decides nothing, it explains.
func diagnose(token procedures.Token, attemptedAt *time.Time, policy ...string) call {
	return call{"diagnose", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Diagnose(ctx, token, attemptedAt, first(policy))
		return answer{Outcome: got.Reason, Certain: &got.Certain, Observation: got.Observation}, err
	}}
}

func seize(resource string, generation int64, by string) call {
	return call{"seize", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Seize(ctx, procedures.InterveneParams{Resource: resource, Generation: generation, By: by})
		return answer{
			Outcome: got.Outcome, Observation: got.Observation, Generation: got.Generation, PreviousOwner: got.PreviousOwner,
		}, err
	}}
}

// raiseFloor is for every resource when the resource is empty.
func raiseFloor(resource string, atLeast int64) call {
	var of *string
	if resource != "" {
		of = &resource
	}
	return call{"raise_floor", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.RaiseFloor(ctx, of, atLeast)
		return answer{Outcome: got.Outcome, FloorBefore: &got.FloorBefore, FloorAfter: &got.FloorAfter}, err
	}}
}

func remove(resource string, generation int64, by string) call {
	return call{"remove", func(ctx context.Context, c connection) (answer, error) {
		got, err := c.Remove(ctx, procedures.InterveneParams{Resource: resource, Generation: generation, By: by})
		return answer{Outcome: got.Outcome, FloorAfter: got.FloorAfter}, err
	}}
}

// prune has no outcome of its own: Pruned counts what was removed from each table.
func prune(olderThan time.Duration, batch int32) call {
	return call{"prune", func(ctx context.Context, c connection) (answer, error) {
		rows, err := c.Prune(ctx, olderThan.Milliseconds(), batch)
		got := answer{Outcome: "pruned", Pruned: map[string]int64{}}
		for _, row := range rows {
			got.Pruned[row.TableName] = row.Removed
		}
		return got, err
	}}
}

// raw calls a routine with exactly these arguments, NULL included, and answers nothing but "done".
func raw(routine string, arguments ...any) call {
	return call{routine, func(ctx context.Context, c connection) (answer, error) {
		return answer{Outcome: "done"}, c.routine(ctx, routine, arguments...)
	}}
}

// lockTable waits until nobody uses a table, and keeps it from everybody until the transaction ends.
func lockTable(table string) call {
	return call{"lock " + table, func(ctx context.Context, c connection) (answer, error) {
		return answer{Outcome: "done"}, c.lockTable(ctx, table)
	}}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
