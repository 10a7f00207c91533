package procedures

import (
	"errors"
	"fmt"
	"net"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
)

func TestErrorsOfSQLServerAreKnownByTheirNumber(t *testing.T) {
	t.Parallel()
	for number, kind := range map[int32]Kind{
		51001: KindInvalidArgument, 51002: KindNoTransaction, 51003: KindRetry, 51100: KindRefused,
		1205: KindRetry, 3960: KindRetry, 1222: KindBusy, 3906: KindReadOnly, 208: KindNotInstalled, 2812: KindNotInstalled,
		229: KindNotPermitted, 18456: KindNotPermitted, 4060: KindCannotConnect,
		33557097: KindOutcomeUnknown, // Babelfish: any error that it has no other number for
		8134:     KindOutcomeUnknown, 0: KindOutcomeUnknown,
	} {
		got := Classify(fmt.Errorf("call: %w", mssql.Error{Number: number}))
		assert.Equal(t, kind, got.Kind, number)
		assert.Equal(t, number, got.Number)
	}
}

// After the cause SQL Server may say what became of the transaction, and the driver shows what was said last.
func TestTheFirstErrorThatIsKnownIsTheCause(t *testing.T) {
	t.Parallel()
	cause := mssql.Error{Number: 51001, State: 4}
	got := Classify(mssql.Error{Number: 3621, All: []mssql.Error{cause, {Number: 3621}}})
	assert.Equal(t, Failure{Kind: KindInvalidArgument, Number: 51001, Argument: "ttl_ms"}, got)
}

func TestAnArgumentIsNamedByTheState(t *testing.T) {
	t.Parallel()
	for state, argument := range map[uint8]string{0: "", 1: "resource", 9: "policy", 16: "batch", 17: "", 255: ""} {
		assert.Equal(t, argument, Classify(mssql.Error{Number: 51001, State: state}).Argument, state)
	}
}

func TestWhatIsNotSaidByTheServer(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	assert.Equal(t, KindCannotConnect, Classify(fmt.Errorf("unable to open tcp connection: %w", dial)).Kind)
	read := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	assert.Equal(t, KindOutcomeUnknown, Classify(fmt.Errorf("read: %w", read)).Kind)
	assert.Equal(t, KindOutcomeUnknown, Classify(errors.New("anything else")).Kind)
}
