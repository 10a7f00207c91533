package procedures

import (
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
)

// Kind says what a failed call calls for.
type Kind string

// Kinds of failures.
const (
	KindInvalidArgument Kind = "invalid_argument" // mend the call
	KindRefused         Kind = "refused"          // require: the fence says no
	KindNoTransaction   Kind = "no_transaction"   // check and require want one: begin it before
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
	// Number is the error number that SQL Server gave, or 0.
	Number int32
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
	var numbered mssql.Error
	if errors.As(err, &numbered) {
		return classifyNumbered(numbered)
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
	// No connection, no login, nothing sent.
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return Failure{Kind: KindCannotConnect}
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

// classifyNumbered explains what SQL Server said. It may send several errors for one call, of which the driver
// shows the last: the first one that is known is the cause.
func classifyNumbered(last mssql.Error) Failure {
	for _, one := range append(last.All, last) {
		if kind := kindOfNumber(one.Number); kind != KindOutcomeUnknown {
			failure := Failure{Kind: kind, Number: one.Number}
			if kind == KindInvalidArgument {
				failure.Argument = argumentOfState(one.State)
			}
			return failure
		}
	}
	return Failure{Kind: KindOutcomeUnknown, Number: last.Number}
}

// kindOfNumber knows the documented numbers: any other one says nothing about what has happened.
//
// Babelfish has one number, 33557097, for everything that it has no number of SQL Server's for: among others a
// wait for a lock that took too long, a serialization failure, a table that does not exist. Only the text would
// tell them apart, which depends on the server's language; so the outcome is unknown, and asking again with the
// same request, which is what that calls for, is right for the first two and finds the third again.
func kindOfNumber(number int32) Kind {
	switch number {
	case 51001:
		return KindInvalidArgument
	case 51002:
		return KindNoTransaction
	case 51100:
		return KindRefused
	case 51003, 1205, 3960: // create race; deadlock; snapshot conflict
		return KindRetry
	case 1222: // LOCK_TIMEOUT
		return KindBusy
	case 3906: // the database is read-only
		return KindReadOnly
	case 208, 2812: // no such table; no such procedure
		return KindNotInstalled
	case 229, 18456: // no right; login failed
		return KindNotPermitted
	case 4060, 40613: // the database does not open; is not available at the moment
		return KindCannotConnect
	}
	return KindOutcomeUnknown
}

// argumentOfState is the argument that error 51001 names: its state counts them as fence.argument_state does.
func argumentOfState(state uint8) string {
	names := [...]string{
		"", "resource", "owner", "generation", "ttl_ms", "attributes", "payload", "content_type", "operation_key",
		"policy", "source_as_of", "max_source_age_ms", "then_release", "by", "at_least", "older_than_ms", "batch",
	}
	if int(state) >= len(names) {
		return ""
	}
	return names[state]
}
