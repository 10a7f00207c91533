package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	mssqldb "github.com/microsoft/go-mssqldb"
)

// connectError explains why there is no connection.
func connectError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, "connect", err)
	}
	known := &Error{Kind: KindCannotConnect, Message: "connect", Err: err}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch {
		case strings.HasPrefix(server.Code, "28"), server.Code == "42501":
			known.Kind = KindNotPermitted
		}
	}
	return known
}

// interrupted explains an error that came because the context had ended.
func interrupted(ctx context.Context, operation string, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		cause = err
	}
	message := "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		message = "not done in time"
	}
	if operation != "" {
		message = operation + ": " + message
	}
	return &Error{Kind: KindInterrupted, Message: message, Err: errors.Join(ctx.Err(), cause)}
}

// explain says what a failure calls for. It never reads message texts; an error without a documented number
// means that the session was lost.
func explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return interrupted(ctx, operation, err)
	}
	known = &Error{Kind: KindOther, Message: operation, Err: err}
	var server *pgconn.PgError
	var numbered mssqldb.Error
	switch {
	case errors.As(err, &numbered):
		known.Kind = kindOfNumber(numbered.Number)
	case errors.As(err, &server):
		known.Kind = kindOfState(server.Code)
		known.Hint = strings.TrimSpace(strings.Join([]string{server.Detail, server.Hint}, "\n"))
	case errors.Is(err, errSessionLost), isConnectionError(err):
		known.Kind = KindOutcomeUnknown
		known.Hint = "run the command again: it finds out how far this run came, and completes it"
	}
	return known
}

func kindOfState(code string) Kind {
	switch code {
	case "42501":
		return KindNotPermitted
	case "55P03":
		return KindLockTimeout
	case "57P01", "57P02", "57P03":
		return KindOutcomeUnknown
	}
	if strings.HasPrefix(code, "08") {
		return KindOutcomeUnknown
	}
	return KindOther
}

func isConnectionError(err error) bool {
	if errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) {
		return true
	}
	for _, known := range lostConnection {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

var lostConnection = []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, driver.ErrBadConn, sql.ErrConnDone}
