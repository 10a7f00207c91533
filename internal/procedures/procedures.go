// Package procedures calls the routines of the schema fence: one method a routine, one struct a result row.
//
// It is the only place in this module that knows how a routine is called. Words (outcomes, reasons) are
// those of the SQL files; durations are milliseconds; times come from the database's clock.
package procedures

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Outcomes of the routines.
const (
	Acquired  = "acquired"
	Held      = "held"
	Replayed  = "replayed"
	Renewed   = "renewed"
	Released  = "released"
	Refused   = "refused"
	Accepted  = "accepted"
	Rejected  = "rejected"
	OK        = "ok"
	Seized    = "seized"
	Raised    = "raised"
	Unchanged = "unchanged"
	Removed   = "removed"
	NotFound  = "not_found"
)

// Reasons of a refusal. NotFound is one of them, too.
const (
	Superseded    = "superseded"
	AheadOfIssuer = "ahead_of_issuer"
	WrongOwner    = "wrong_owner"
	WasReleased   = "released"
	Expired       = "expired"
	StaleSource   = "stale_source"
	KeyConflict   = "key_conflict"
	Unknown       = "unknown"
)

// Policies of publish, check, require and diagnose.
const (
	UntilSuperseded = "until_superseded"
	Unexpired       = "unexpired"
)

// Procedures is what every engine offers. Errors are those of the driver: Classify tells what they mean.
type Procedures interface {
	Acquire(ctx context.Context, p AcquireParams) (AcquireResult, error)
	Renew(ctx context.Context, t Token, ttlMS int64) (RenewResult, error)
	Release(ctx context.Context, t Token) (ReleaseResult, error)
	Publish(ctx context.Context, p PublishParams) (PublishResult, error)
	Check(ctx context.Context, t Token, policy string) (CheckResult, error)
	Require(ctx context.Context, t Token, policy string) (CheckResult, error)
	Diagnose(ctx context.Context, t Token, attemptedAt *time.Time, policy string) (DiagnoseResult, error)
	Seize(ctx context.Context, p InterveneParams) (SeizeResult, error)
	RaiseFloor(ctx context.Context, resource *string, atLeast int64) (RaiseFloorResult, error)
	Remove(ctx context.Context, p InterveneParams) (RemoveResult, error)
	Prune(ctx context.Context, olderThanMS int64, batch int32) ([]PruneResult, error)
	About(ctx context.Context) (AboutResult, error)
}

// Token is what a caller must present: the acquisition that it acts for.
type Token struct {
	Resource   string
	Owner      string
	Generation int64
}

// Observation is what a read of the row saw: evidence, not proof. All fields are nil when there was nothing
// to explain.
type Observation struct {
	ObservedGeneration *int64     `json:"observed_generation"`
	ObservedOwner      *string    `json:"observed_owner"`
	ObservedLeaseUntil *time.Time `json:"observed_lease_until"`
	ObservedAt         *time.Time `json:"observed_at"`
}

// AcquireParams are the parameters of acquire. RequestID and Attributes are optional.
type AcquireParams struct {
	Resource   string
	Owner      string
	TTLMS      int64
	RequestID  *uuid.UUID
	Attributes json.RawMessage
}

// AcquireResult is the answer of acquire. Generation is nil when the lease is held.
type AcquireResult struct {
	Outcome          string          `json:"outcome"`
	Generation       *int64          `json:"generation"`
	LeaseUntil       time.Time       `json:"lease_until"`
	RemainingMS      int64           `json:"remaining_ms"`
	Holder           *string         `json:"holder"`
	HolderAttributes json.RawMessage `json:"holder_attributes"`
}

// RenewResult is the answer of renew.
type RenewResult struct {
	Outcome     string     `json:"outcome"`
	Reason      *string    `json:"reason"`
	LeaseUntil  *time.Time `json:"lease_until"`
	RemainingMS *int64     `json:"remaining_ms"`
	Observation
}

// ReleaseResult is the answer of release.
type ReleaseResult struct {
	Outcome string  `json:"outcome"`
	Reason  *string `json:"reason"`
	Observation
}

// PublishParams are the parameters of publish. An empty ContentType is application/json, an empty Policy is
// until_superseded; the pointers are optional.
type PublishParams struct {
	Token
	Payload        string
	ContentType    string
	OperationKey   *string
	Policy         string
	SourceAsOf     *time.Time
	MaxSourceAgeMS *int64
	ThenRelease    bool
}

// PublishResult is the answer of publish. LateMS is nil when the publish was in time.
type PublishResult struct {
	Outcome     string     `json:"outcome"`
	Reason      *string    `json:"reason"`
	PublishedAt *time.Time `json:"published_at"`
	Revision    *int64     `json:"revision"`
	LateMS      *int64     `json:"late_ms"`
	AttemptedAt time.Time  `json:"attempted_at"`
	Observation
}

// CheckResult is the answer of check and require. LateMS is nil while the lease lasts.
type CheckResult struct {
	Outcome string  `json:"outcome"`
	Reason  *string `json:"reason"`
	LateMS  *int64  `json:"late_ms"`
	Observation
}

// DiagnoseResult is the answer of diagnose.
type DiagnoseResult struct {
	Reason  string `json:"reason"`
	Certain bool   `json:"certain"`
	Observation
}

// InterveneParams are the parameters of seize and remove: an operator's decision. Note is optional.
type InterveneParams struct {
	Resource   string
	Generation int64
	By         string
	Note       *string
}

// SeizeResult is the answer of seize. Generation is the new one.
type SeizeResult struct {
	Outcome       string  `json:"outcome"`
	Generation    *int64  `json:"generation"`
	PreviousOwner *string `json:"previous_owner"`
	Observation
}

// RaiseFloorResult is the answer of raise_floor.
type RaiseFloorResult struct {
	Outcome     string `json:"outcome"`
	FloorBefore int64  `json:"floor_before"`
	FloorAfter  int64  `json:"floor_after"`
}

// RemoveResult is the answer of remove. FloorAfter is nil unless the resource was removed.
type RemoveResult struct {
	Outcome    string `json:"outcome"`
	FloorAfter *int64 `json:"floor_after"`
}

// PruneResult is one row of the answer of prune.
type PruneResult struct {
	TableName string `json:"table_name"`
	Removed   int64  `json:"removed"`
}

// AboutResult is the answer of about.
type AboutResult struct {
	ContractVersion int32  `json:"contract_version"`
	Engine          string `json:"engine"`
	EngineVersion   string `json:"engine_version"`
	SchemaVersion   int64  `json:"schema_version"`
	TimelineSource  string `json:"timeline_source"`
}
