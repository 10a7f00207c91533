package procedures

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/golang-sql/civil"
	mssql "github.com/microsoft/go-mssqldb"
)

// SQLServer calls the routines on a SQL Server pool, connection or transaction, through go-mssqldb. Check and
// Require need a transaction, and fail with KindNoTransaction elsewhere.
//
// Routines are called by name, as a remote procedure call: optional parameters that are not given are not
// sent, and the others travel with the declared type, since an implicit conversion could not use an index.
type SQLServer struct {
	DB SQLServerDB
}

// SQLServerDB is what sql.DB, sql.Conn and sql.Tx have in common that a call needs.
type SQLServerDB interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

var _ Procedures = SQLServer{}

// call runs a routine and hands each row of its answer to row. It reads everything that the server sends: an
// error can come after the row, and one that is not read would be lost with QueryRow.
func (s SQLServer) call(ctx context.Context, routine string, row func(*sql.Rows) error, params ...any) error {
	rows, err := s.DB.QueryContext(ctx, "fence."+routine, params...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		for rows.Next() {
			if err := row(rows); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// one runs a routine that answers with exactly one row, whose columns go into the places.
func (s SQLServer) one(ctx context.Context, routine string, places []any, params ...any) error {
	found := 0
	err := s.call(ctx, routine, func(rows *sql.Rows) error {
		found++
		return rows.Scan(places...)
	}, params...)
	if err == nil && found != 1 {
		return fmt.Errorf("call fence.%s: %d rows instead of one", routine, found)
	}
	return err
}

// params are named parameters. Optional ones are left out when they are nil.
type params []any

func (p params) with(name string, value any) params { return append(p, sql.Named(name, value)) }

func (p params) text(name string, value *string) params {
	if value == nil {
		return p
	}
	return p.with(name, *value)
}

// long is a parameter of type nvarchar(max).
func (p params) long(name string, value *string) params {
	if value == nil {
		return p
	}
	return p.with(name, mssql.NVarCharMax(*value))
}

func (p params) number(name string, value *int64) params {
	if value == nil {
		return p
	}
	return p.with(name, *value)
}

// instant is a parameter of type datetime2, which knows no time zone: the time of day in UTC.
func (p params) instant(name string, value *time.Time) params {
	if value == nil {
		return p
	}
	return p.with(name, civil.DateTimeOf(value.UTC()))
}

func (p params) token(t Token) params {
	return p.with("resource", t.Resource).with("owner", t.Owner).with("generation", t.Generation)
}

// utc is a place for a datetime2: the driver reads it as a time in the time zone of the connection, and it is
// a time in UTC.
type utc struct{ to *time.Time }

func (u utc) Scan(value any) error {
	at, ok := value.(time.Time)
	if !ok {
		return fmt.Errorf("read a time: it is %T", value)
	}
	*u.to = inUTC(at)
	return nil
}

// maybeUTC is a place for a datetime2 that may be NULL.
type maybeUTC struct{ to **time.Time }

func (u maybeUTC) Scan(value any) error {
	*u.to = nil
	if value == nil {
		return nil
	}
	*u.to = new(time.Time)
	return utc{*u.to}.Scan(value)
}

func inUTC(at time.Time) time.Time {
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

// observed are the places of an observation's columns.
func observed(o *Observation) []any {
	return []any{&o.ObservedGeneration, &o.ObservedOwner, maybeUTC{&o.ObservedLeaseUntil}, maybeUTC{&o.ObservedAt}}
}

// Acquire calls fence.acquire.
func (s SQLServer) Acquire(ctx context.Context, a AcquireParams) (r AcquireResult, err error) {
	p := params{}.with("resource", a.Resource).with("owner", a.Owner).with("ttl_ms", a.TTLMS)
	if a.RequestID != nil {
		p = p.with("request_id", mssql.UniqueIdentifier(*a.RequestID))
	}
	if a.Attributes != nil {
		p = p.with("attributes", mssql.NVarCharMax(a.Attributes))
	}
	var attributes *string
	err = s.one(ctx, "acquire", []any{
		&r.Outcome, &r.Generation, utc{&r.LeaseUntil}, &r.RemainingMS, &r.Holder, &attributes,
	}, p...)
	if attributes != nil {
		r.HolderAttributes = json.RawMessage(*attributes)
	}
	return r, err
}

// Renew calls fence.renew.
func (s SQLServer) Renew(ctx context.Context, t Token, ttlMS int64) (r RenewResult, err error) {
	places := append([]any{&r.Outcome, &r.Reason, maybeUTC{&r.LeaseUntil}, &r.RemainingMS}, observed(&r.Observation)...)
	err = s.one(ctx, "renew", places, params{}.token(t).with("ttl_ms", ttlMS)...)
	return r, err
}

// Release calls fence.release.
func (s SQLServer) Release(ctx context.Context, t Token) (r ReleaseResult, err error) {
	places := append([]any{&r.Outcome, &r.Reason}, observed(&r.Observation)...)
	err = s.one(ctx, "release", places, params{}.token(t)...)
	return r, err
}

// Publish calls fence.publish.
func (s SQLServer) Publish(ctx context.Context, a PublishParams) (r PublishResult, err error) {
	if a.ContentType == "" {
		a.ContentType = "application/json"
	}
	p := params{}.token(a.Token).
		with("payload", mssql.NVarCharMax(a.Payload)).
		with("content_type", a.ContentType).
		text("operation_key", a.OperationKey).
		with("policy", policyOrDefault(a.Policy)).
		instant("source_as_of", a.SourceAsOf).
		number("max_source_age_ms", a.MaxSourceAgeMS).
		with("then_release", a.ThenRelease)
	places := append([]any{
		&r.Outcome, &r.Reason, maybeUTC{&r.PublishedAt}, &r.Revision, &r.LateMS, utc{&r.AttemptedAt},
	}, observed(&r.Observation)...)
	err = s.one(ctx, "publish", places, p...)
	return r, err
}

// Check calls fence.check.
func (s SQLServer) Check(ctx context.Context, t Token, policy string) (CheckResult, error) {
	return s.check(ctx, "[check]", t, policy)
}

// Require calls fence.require.
func (s SQLServer) Require(ctx context.Context, t Token, policy string) (CheckResult, error) {
	return s.check(ctx, "require", t, policy)
}

func (s SQLServer) check(ctx context.Context, routine string, t Token, policy string) (r CheckResult, err error) {
	places := append([]any{&r.Outcome, &r.Reason, &r.LateMS}, observed(&r.Observation)...)
	err = s.one(ctx, routine, places, params{}.token(t).with("policy", policyOrDefault(policy))...)
	return r, err
}

// Diagnose calls fence.diagnose.
func (s SQLServer) Diagnose(ctx context.Context, t Token, attemptedAt *time.Time, policy string) (r DiagnoseResult, err error) {
	p := params{}.token(t).instant("attempted_at", attemptedAt).with("policy", policyOrDefault(policy))
	places := append([]any{&r.Reason, &r.Certain}, observed(&r.Observation)...)
	err = s.one(ctx, "diagnose", places, p...)
	return r, err
}

// Seize calls fence.seize.
func (s SQLServer) Seize(ctx context.Context, a InterveneParams) (r SeizeResult, err error) {
	places := append([]any{&r.Outcome, &r.Generation, &r.PreviousOwner}, observed(&r.Observation)...)
	err = s.one(ctx, "seize", places, intervention(a)...)
	return r, err
}

// RaiseFloor calls fence.raise_floor.
func (s SQLServer) RaiseFloor(ctx context.Context, resource *string, atLeast int64) (r RaiseFloorResult, err error) {
	of := sql.NullString{} // it has no default: NULL says that it is for all
	if resource != nil {
		of = sql.NullString{String: *resource, Valid: true}
	}
	err = s.one(ctx, "raise_floor", []any{&r.Outcome, &r.FloorBefore, &r.FloorAfter},
		params{}.with("resource", of).with("at_least", atLeast)...)
	return r, err
}

// Remove calls fence.remove.
func (s SQLServer) Remove(ctx context.Context, a InterveneParams) (r RemoveResult, err error) {
	err = s.one(ctx, "remove", []any{&r.Outcome, &r.FloorAfter}, intervention(a)...)
	return r, err
}

func intervention(a InterveneParams) params {
	return params{}.with("resource", a.Resource).with("generation", a.Generation).with("by", a.By).long("note", a.Note)
}

// Prune calls fence.prune.
func (s SQLServer) Prune(ctx context.Context, olderThanMS int64, batch int32) (all []PruneResult, err error) {
	err = s.call(ctx, "prune", func(rows *sql.Rows) error {
		var r PruneResult
		err := rows.Scan(&r.TableName, &r.Removed)
		all = append(all, r)
		return err
	}, params{}.with("older_than_ms", olderThanMS).with("batch", batch)...)
	return all, err
}

// About calls fence.about.
func (s SQLServer) About(ctx context.Context) (r AboutResult, err error) {
	err = s.one(ctx, "about", []any{
		&r.ContractVersion, &r.Engine, &r.EngineVersion, &r.SchemaVersion, &r.TimelineSource,
	})
	return r, err
}
