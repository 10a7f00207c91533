package codegen_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/gen/fence"
	"github.com/fencectl/fencectl/gen/fencemssql"
	"github.com/fencectl/fencectl/gen/fencepg"
)

func TestErrorsOfPostgreSQLAreKnownByTheirSQLState(t *testing.T) {
	t.Parallel()
	for code, is := range map[string]func(error) bool{
		"FN001": fence.IsInvalidArgument, "FN100": fence.IsRefused, "FN003": fence.IsRetryable, "40001": fence.IsRetryable,
		"40P01": fence.IsRetryable, "55P03": fence.IsBusy, "25006": fence.IsReadOnly, "3F000": fence.IsNotInstalled,
		"42883": fence.IsNotInstalled, "42501": fence.IsNotPermitted, "28P01": fence.IsNotPermitted, "57P01": fence.IsOutcomeUnknown,
		"08006": fence.IsOutcomeUnknown, "53300": fence.IsRetryable,
	} {
		err := fencepg.Translate(fmt.Errorf("call: %w", &pgconn.PgError{Code: code}))
		assert.True(t, is(fmt.Errorf("wrapped: %w", err)), code)
		var known *fence.Error
		require.ErrorAs(t, err, &known)
		assert.Equal(t, code, known.SQLState)
	}
	assert.Equal(t, fence.KindOther, fence.KindOf(fencepg.Translate(&pgconn.PgError{Code: "22012"})))
	assert.Equal(t, fence.KindOther, fence.KindOf(fencepg.Translate(pgx.ErrTxCommitRollback)), "the server said what became of it")
	assert.NoError(t, fencepg.Translate(nil))
}

func TestErrorsOfSQLServerAreKnownByTheirNumber(t *testing.T) {
	t.Parallel()
	for number, kind := range map[int32]fence.Kind{
		51001: fence.KindInvalidArgument, 51002: fence.KindNoTransaction, 51003: fence.KindRetry, 51100: fence.KindRefused,
		1205: fence.KindRetry, 3960: fence.KindRetry, 1222: fence.KindBusy, 3906: fence.KindReadOnly, 208: fence.KindNotInstalled,
		2812: fence.KindNotInstalled, 229: fence.KindNotPermitted, 18456: fence.KindNotPermitted, 4060: fence.KindCannotConnect,
		33557097: fence.KindOutcomeUnknown, // Babelfish: any error that it has no other number for
		8134:     fence.KindOutcomeUnknown, 0: fence.KindOutcomeUnknown,
	} {
		var known *fence.Error
		require.ErrorAs(t, fencemssql.Translate(fmt.Errorf("call: %w", mssql.Error{Number: number})), &known)
		assert.Equal(t, kind, known.Kind, number)
		assert.Equal(t, number, known.Number)
	}
}

// After the cause SQL Server may say what became of the transaction, and the driver shows what was said last.
func TestTheFirstErrorThatIsKnownIsTheCause(t *testing.T) {
	t.Parallel()
	cause := mssql.Error{Number: 51001, State: 4}
	var known *fence.Error
	require.ErrorAs(t, fencemssql.Translate(mssql.Error{Number: 3621, All: []mssql.Error{cause, {Number: 3621}}}), &known)
	assert.Equal(t, fence.KindInvalidArgument, known.Kind)
	assert.Equal(t, "ttl_ms", known.Argument)
}

func TestAnArgumentAndAReasonAreNamedByTheState(t *testing.T) {
	t.Parallel()
	for state, argument := range map[uint8]string{0: "", 1: "resource", 9: "policy", 16: "batch", 17: "", 255: ""} {
		var known *fence.Error
		require.ErrorAs(t, fencemssql.Translate(mssql.Error{Number: 51001, State: state}), &known)
		assert.Equal(t, argument, known.Argument, state)
	}
	for state, reason := range map[uint8]fence.Reason{0: "", 1: fence.ReasonNotFound, 2: fence.ReasonSuperseded, 6: fence.ReasonExpired, 7: ""} {
		var known *fence.Error
		require.ErrorAs(t, fencemssql.Translate(mssql.Error{Number: 51100, State: state}), &known)
		assert.Equal(t, reason, known.Reason, state)
	}
}

func TestWhatIsNotSaidByTheServer(t *testing.T) {
	t.Parallel()
	dial := fmt.Errorf("unable to open tcp connection: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
	read := fmt.Errorf("read: %w", &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")})
	for name, translate := range map[string]func(error) error{"pgx": fencepg.Translate, "mssql": fencemssql.Translate} {
		assert.Equal(t, fence.KindCannotConnect, fence.KindOf(translate(dial)), name)
		assert.True(t, fence.IsOutcomeUnknown(translate(read)), name)
		assert.True(t, fence.IsOutcomeUnknown(translate(errors.New("anything else"))), name)
		assert.True(t, fence.IsOutcomeUnknown(translate(context.DeadlineExceeded)), name)
		once := translate(read)
		assert.Same(t, once, translate(once), name)
	}
	assert.True(t, fence.IsOutcomeUnknown(fencepg.Translate(pgconn.ErrConnClosed)), "a lost reply looks like this, too")
}
