package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what a failed command calls for. Callers choose exit codes by it.
type Kind string

// Kinds of failures.
const (
	// KindUsage: the command was called wrongly; nothing was touched.
	KindUsage Kind = "usage"
	// KindDestructive: the command would drop leases, and was not allowed to. Also a matter of usage.
	KindDestructive Kind = "destructive"
	// KindCannotConnect: no connection; nothing was sent.
	KindCannotConnect Kind = "cannot_connect"
	// KindNotPermitted: the user lacks a right; the hint says which, and how to give it.
	KindNotPermitted Kind = "not_permitted"
	// KindLockTimeout: somebody else holds the migration lock, or a table; see [Error.Holders].
	KindLockTimeout Kind = "lock_timeout"
	// KindUnfit: the database cannot be used as it is (version, encoding, a standby, a transaction-mode
	// pooler in between, a schema named fence that is not ours). Nothing was touched.
	KindUnfit Kind = "unfit"
	// KindNotInstalled: there is no fence here, or it is older than what the command needs.
	KindNotInstalled Kind = "not_installed"
	// KindDifference: the command did its work, and what is installed still differs from what should be.
	KindDifference Kind = "difference"
	// KindInterrupted: the caller's context ended. The error wraps [context.Canceled] or
	// [context.DeadlineExceeded].
	KindInterrupted Kind = "interrupted"
	// KindOutcomeUnknown: the connection was lost in the middle. The same command, run again, finds out and
	// completes what was begun.
	KindOutcomeUnknown Kind = "outcome_unknown"
	// KindOther: anything else that the server said.
	KindOther Kind = "error"
)

// Error is a failure with what a caller needs to act on it. Its text never contains a password.
type Error struct {
	Kind Kind
	// Message says what failed, without the cause.
	Message string
	// Hint says what to do about it; may be empty, may have several lines (SQL to run).
	Hint string
	// Holders are the sessions in the way, for KindLockTimeout, as far as this user may see them.
	Holders []Holder
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	if e.Message == "" {
		return e.Err.Error()
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of this package, KindOther for any other error, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var known *Error
	if errors.As(err, &known) {
		return known.Kind
	}
	return KindOther
}

// Holder is a session that holds what a command waits for. What this user may not see of another user's
// session is empty.
type Holder struct {
	PID             int32      `json:"pid"`
	User            string     `json:"user,omitempty"`
	ApplicationName string     `json:"application_name,omitempty"`
	ClientAddress   string     `json:"client_address,omitempty"`
	State           string     `json:"state,omitempty"`
	ConnectedAt     *time.Time `json:"connected_at,omitempty"`
	// Since is when its transaction began, or else when its last statement did.
	Since *time.Time `json:"since,omitempty"`
}

// String describes the session in one line.
func (h Holder) String() string {
	var parts []string
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	parts = append(parts, fmt.Sprintf("pid %d", h.PID))
	add("user %s", h.User)
	add("application %q", h.ApplicationName)
	add("from %s", h.ClientAddress)
	add("%s", h.State)
	if h.ConnectedAt != nil {
		add("connected since %s", h.ConnectedAt.UTC().Format(time.RFC3339))
	}
	if h.Since != nil {
		add("busy since %s", h.Since.UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, ", ")
}
