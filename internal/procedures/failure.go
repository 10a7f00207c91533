package procedures

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind says what a failed call calls for.
type Kind string

// Kinds of failures.
const (
	KindInvalidArgument Kind = "invalid_argument" // mend the call
	KindRefused         Kind = "refused"          // require: the fence says no
	KindBusy            Kind = "busy"             // a transaction holds the row: counts as held
	KindRetry           Kind = "retry"            // retry the whole transaction
	KindReadOnly        Kind = "read_only"        // a standby, or a read-only transaction
	KindNotInstalled    Kind = "not_installed"    // run `fencectl migrate`
	KindNotPermitted    Kind = "not_permitted"    // a role is missing
	KindCannotConnect   Kind = "cannot_connect"   // nothing was sent
	KindOutcomeUnknown  Kind = "outcome_unknown"  // sent, and no answer: ask again with the same request
	KindOther           Kind = "error"            // anything else that the server said
)

// Failure is an error of a call, explained.
type Failure struct {
	Kind Kind
	// SQLState is the five characters that the server gave, or empty.
	SQLState string
	// Argument is the parameter that an invalid_argument names, or empty.
	Argument string
}

// Retryable tells whether the same call may succeed when it is simply made again, with the same request id
// or operation key where it has one.
func (f Failure) Retryable() bool {
	switch f.Kind {
	case KindBusy, KindRetry, KindCannotConnect, KindOutcomeUnknown:
		return true
	}
	return false
}

// OutcomeUnknown tells whether the call may have taken effect although its answer is missing.
func (f Failure) OutcomeUnknown() bool { return f.Kind == KindOutcomeUnknown }

// Classify explains an error that a method of Procedures returned. It never reads message texts: an error
// without a documented number means that the outcome is unknown.
func Classify(err error) Failure {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return Failure{Kind: kindOfSQLState(server.Code), SQLState: server.Code, Argument: server.ColumnName}
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return Failure{Kind: KindCannotConnect}
	}
	// pgx says of this one that nothing was sent, but it also returns it when the reply to a statement without
	// parameters (COMMIT, a batch) was lost: the read that fails closes the connection, and the next read
	// reports the closed connection (pgconn.MultiResultReader.NextResult drops the first error).
	if errors.Is(err, pgconn.ErrConnClosed) {
		return Failure{Kind: KindOutcomeUnknown}
	}
	if pgconn.SafeToRetry(err) {
		return Failure{Kind: KindCannotConnect}
	}
	return Failure{Kind: KindOutcomeUnknown}
}

func kindOfSQLState(code string) Kind {
	switch code {
	case "FN001":
		return KindInvalidArgument
	case "FN100":
		return KindRefused
	case "FN003", "40001", "40P01":
		return KindRetry
	case "55P03":
		return KindBusy
	case "25006":
		return KindReadOnly
	case "3F000", "42883", "42P01":
		return KindNotInstalled
	case "42501", "28000", "28P01":
		return KindNotPermitted
	// The server went away while it worked: what it was doing may be done.
	case "57P01", "57P02", "08006", "08003", "40003":
		return KindOutcomeUnknown
	}
	switch {
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), code == "57P03", code == "3D000":
		return KindCannotConnect
	}
	return KindOther
}
