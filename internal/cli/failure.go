package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/demo"
	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
)

// Kinds of failures that this package adds to those of procedures and deploy.
const (
	kindUsage       = "usage"
	kindTimeout     = "timeout"
	kindInterrupted = "interrupted"
)

// unknownSetting is what the server says when it does not know a parameter of the connection.
const unknownSetting = "42704"

// failure is what a script learns about a command that did not do its work.
type failure struct {
	Kind     string  `json:"kind"`
	Message  string  `json:"message"`
	SQLState *string `json:"sqlstate"`
	// Number is the error's number, where SQL Server gave one.
	Number         int32  `json:"number,omitempty"`
	Retryable      bool   `json:"retryable"`
	OutcomeUnknown bool   `json:"outcome_unknown"`
	Hint           string `json:"hint"`
	// What to repeat the call with, where it has an id.
	RequestID    string `json:"request_id,omitempty"`
	OperationKey string `json:"operation_key,omitempty"`
	// What prune had removed before it failed.
	Removed []procedures.PruneResult `json:"removed,omitempty"`
	// What demo had shown before it failed.
	Steps []demo.Step `json:"steps,omitempty"`

	exit ExitCode
}

// usageError says that the command line, the configuration or the environment is wrong: nothing was sent.
type usageError struct {
	message string
	hint    string
}

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// refusal says that the fence refused, and that the row which says why is printed.
type refusal struct{ outcome string }

func (r refusal) Error() string { return r.outcome }

// finding says that a report is printed, and that it reports something wrong.
type finding struct{ what string }

func (f finding) Error() string { return f.what }

// timeoutError says that --timeout ended the command.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.limit) }

// callError is a failed call of a routine. unknown tells that it, or an earlier try of it, may have taken effect.
type callError struct {
	err     error
	unknown bool
	reading bool
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// named is an error of a call that has an id, so that the same call can be made again.
type named struct {
	error
	requestID    string
	operationKey string
}

func (e *named) Unwrap() error { return e.error }

// partly is an error of a command that had done some of its work.
type partly struct {
	error
	removed []procedures.PruneResult
}

func (e *partly) Unwrap() error { return e.error }

// ended is an error after the command's time was up, or after it was interrupted.
type ended struct {
	error
	cause error // timeoutError, or the signal
}

func (e *ended) Unwrap() error { return e.error }

// endedBy marks an error that the end of the command's context explains.
func endedBy(ctx, parent context.Context, err error) error {
	var printed refusal
	if ctx.Err() == nil || errors.As(err, &printed) {
		return err
	}
	if parent.Err() != nil {
		return &ended{error: err, cause: context.Canceled}
	}
	return &ended{error: err, cause: context.Cause(ctx)}
}

// explain says what an error calls for.
func explain(err error) failure {
	f := explainCause(err)
	f.Message = redact(f.Message)
	var end *ended
	if errors.As(err, &end) {
		f = explainEnd(f, err, end.cause)
	}
	var id *named
	if errors.As(err, &id) {
		f.RequestID, f.OperationKey = id.requestID, id.operationKey
		f.Hint += repeatHint(f, id)
	}
	var part *partly
	if errors.As(err, &part) {
		f.Removed = part.removed
	}
	var story *told
	if errors.As(err, &story) {
		f.Steps = story.steps
	}
	return f
}

func explainCause(err error) failure {
	var usage *usageError
	var unusable *client.UnusableError
	var deployment *deploy.Error
	var call *callError
	switch {
	case errors.As(err, &usage):
		return failure{Kind: kindUsage, Message: usage.message, Hint: usage.hint, exit: ExitUsage}
	case errors.As(err, &unusable):
		return failure{Kind: kindUsage, Message: unusable.Error(), Hint: unusable.Hint, exit: ExitUsage}
	case errors.As(err, &deployment):
		return explainDeployment(deployment)
	case errors.As(err, &call):
		return explainCall(call)
	case errors.Is(err, devdb.ErrNoPostgres):
		// Its message goes on with how to get one.
		message, hint, _ := strings.Cut(err.Error(), "\n")
		return failure{Kind: string(procedures.KindOther), Message: message, Hint: hint, exit: ExitError}
	}
	return failure{Kind: string(procedures.KindOther), Message: err.Error(), Hint: "see the message", exit: ExitError}
}

// explainEnd replaces what the driver says about an ended context by what ended it.
func explainEnd(f failure, err error, cause error) failure {
	var limit timeoutError
	var deployment *deploy.Error
	said := errors.As(err, &deployment) // deploy words its own messages, and knows what is left to do
	if !errors.As(cause, &limit) {
		f.Kind, f.Retryable, f.exit = kindInterrupted, false, ExitInterrupted
		if !said {
			f.Message, f.Hint = "interrupted"+effect(f, err), "run the command again"
		}
		return f
	}
	switch {
	case f.exit == ExitUsage, f.exit == ExitLockTimeout:
	case said && f.exit == ExitInterrupted:
		f.Kind, f.Message, f.exit = kindTimeout, limit.Error()+": "+f.Message, ExitError
	case said:
	case f.exit == ExitOutcomeUnknown:
		f.Message = limit.Error() + effect(f, err)
	case f.exit == ExitCannotConnect:
		f.Message = limit.Error() + ": " + f.Message
	default:
		f.Kind, f.Message, f.Retryable, f.exit = kindTimeout, limit.Error()+effect(f, err), true, ExitError
		f.Hint = "give it more time with --timeout"
		if waitedForRow(err) {
			f.exit = ExitLockTimeout
			f.Hint = `a transaction seems to hold the row: "fencectl leases" shows which, or ` + f.Hint
		}
	}
	return f
}

// waitedForRow tells whether a call was cancelled that looks up a few rows by key: there is nothing in it that
// takes time but waiting for others. lock_timeout counts for each lock anew, so in a queue it comes too late.
func waitedForRow(err error) bool {
	var call *callError
	var part *partly
	return errors.As(err, &call) && !call.reading && !errors.As(err, &part)
}

// effect says what an ended call has left behind. A call that the server cancelled has left nothing.
func effect(f failure, err error) string {
	var call *callError
	var part *partly
	switch {
	case !errors.As(err, &call), call.reading, errors.As(err, &part):
		return ""
	case f.OutcomeUnknown:
		return "; the call was sent and may have taken effect"
	}
	return "; the call was cancelled and changed nothing"
}

// explainCall explains the error of a routine or of a query.
func explainCall(call *callError) failure {
	known := procedures.Classify(call.err)
	f := failure{
		Kind:           string(known.Kind),
		Message:        serverMessage(call.err),
		Retryable:      known.Retryable(),
		OutcomeUnknown: known.OutcomeUnknown(),
	}
	if known.SQLState != "" {
		f.SQLState = &known.SQLState
	}
	f.Number = known.Number
	switch {
	case call.reading && f.OutcomeUnknown:
		// What only reads leaves no outcome behind.
		f.Kind, f.OutcomeUnknown = string(procedures.KindCannotConnect), false
	case connecting(call.err) && known.Kind == procedures.KindOther && !call.unknown:
		f.Kind = string(procedures.KindCannotConnect) // the server said why, and it is nothing that passes
	case known.Kind == procedures.KindBusy && !call.unknown:
		f.Message = "another transaction held the row for too long"
	case call.unknown:
		f.Kind, f.Retryable, f.OutcomeUnknown = string(procedures.KindOutcomeUnknown), true, true
	}
	f.exit, f.Hint = adviceFor(procedures.Kind(f.Kind), known)
	return f
}

// serverMessage is an error's text in one line, without what its fields say again.
func serverMessage(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) && !connecting(err) {
		return server.Message
	}
	var numbered mssql.Error
	if errors.As(err, &numbered) {
		return oneLine(errors.New(firstKnown(numbered).Message))
	}
	if server != nil && server.Code == unknownSetting {
		// The server names it, and it may be what follows a blank in a password that lacks its quotes.
		return "the server does not know a setting that the DSN holds"
	}
	if errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was lost before the answer came"
	}
	return oneLine(err)
}

// firstKnown is the cause among the errors that SQL Server sent for one call: see [procedures.Classify].
func firstKnown(last mssql.Error) mssql.Error {
	number := procedures.Classify(last).Number
	for _, one := range last.All {
		if one.Number == number {
			return one
		}
	}
	return last
}

func connecting(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect)
}

// oneLine is an error's text in one line. A failed connection has a line for each attempt; with and without TLS
// they usually say the same.
func oneLine(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// adviceFor gives the exit code and the next step for each kind of failed call.
func adviceFor(kind procedures.Kind, known procedures.Failure) (ExitCode, string) {
	switch kind {
	case procedures.KindInvalidArgument:
		return ExitUsage, fmt.Sprintf("mend %s", flagOf(known.Argument))
	case procedures.KindRefused:
		return ExitRefused, "stop this work: another acquisition may be at it"
	case procedures.KindBusy:
		return ExitLockTimeout, `a transaction holds the row: "fencectl leases" shows which, or try again`
	case procedures.KindRetry:
		return ExitError, "run the command again: it met another one at the same moment"
	case procedures.KindReadOnly:
		return ExitCannotConnect, "connect to the primary server: this one is a standby, or read-only"
	case procedures.KindNotInstalled:
		return ExitUnfit, `run "fencectl migrate" on this database, or connect to the one where it was run`
	case procedures.KindNotPermitted:
		return ExitCannotConnect, permissionHint(known)
	case procedures.KindCannotConnect:
		return ExitCannotConnect, `check the address and that the server runs; "fencectl help database" lists where the DSN comes from`
	case procedures.KindOutcomeUnknown:
		return ExitOutcomeUnknown, "make the same call again: it is safe to repeat, and tells what came of this one"
	}
	return ExitError, "see the message, and the server's log"
}

func permissionHint(known procedures.Failure) string {
	const noRight = 229
	if known.SQLState == "42501" || known.Number == noRight {
		return "grant this user the role that may do it (fence_worker, fence_reader or fence_operator)"
	}
	return "check user and password"
}

// flagOf names an argument of a routine as the command line does.
func flagOf(argument string) string {
	switch argument {
	case "":
		return "the argument that the message names"
	case "resource":
		return "RESOURCE"
	case "ttl_ms":
		return "--ttl"
	case "older_than_ms":
		return "--older-than"
	case "max_source_age_ms":
		return "--max-source-age"
	case "payload":
		return "the payload"
	}
	return "--" + dashed(argument)
}

// repeatHint says how to make the same call again.
func repeatHint(f failure, id *named) string {
	if f.exit == ExitUsage {
		return ""
	}
	flag, value := "--request-id", id.requestID
	if id.operationKey != "" {
		flag, value = "--operation-key", id.operationKey
	}
	return fmt.Sprintf("; to repeat this very call, add %s %s", flag, value)
}
