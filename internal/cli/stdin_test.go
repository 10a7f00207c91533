package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nobody writes to the pipe and nobody closes it: only the command's own end can end the read.
func TestReadingStandardInputEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	silent, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })

	sh := on(dsn)
	sh.stdin = silent
	publish := []string{"publish", "r", "--owner", "w1", "--generation", "1", "-o", "json"}
	late := sh.run(t, append(publish, "--timeout", "50ms")...)
	assert.Equal(t, 1, late.code)
	assert.Equal(t, "timeout", late.failure(t)["kind"])

	ctx, interrupt := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { interrupt(errors.New("signal")) })
	sh.ctx = ctx
	interrupted := sh.run(t, publish...)
	assert.Equal(t, 130, interrupted.code, interrupted.stdout)
	assert.Equal(t, "interrupted", interrupted.failure(t)["kind"])

	sh = shell{stdin: silent}
	assert.Equal(t, 1, sh.run(t, "about", "--dsn-file", "-", "--timeout", "50ms").code)
	require.Zero(t, on(dsn).run(t, "publications").code)
	assert.NotContains(t, on(dsn).run(t, "publications").stdout, "w1", "nothing was published")
}

func TestAnEmptyPayloadIsNotPublishedByMistake(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	sh := on(dsn)
	publish := []string{"publish", "r", "--owner", "w1", "--generation", "1", "-o", "json"}
	sh.stdin = strings.NewReader("")
	refused := sh.run(t, publish...)
	assert.Equal(t, 2, refused.code)
	assert.Contains(t, refused.failure(t)["message"], "--allow-empty")

	sh.stdin = strings.NewReader("")
	accepted := sh.run(t, append(publish, "--allow-empty")...)
	require.Zero(t, accepted.code, accepted.stderr)
	assert.EqualValues(t, 1, accepted.object(t)["revision"], "the refused call published nothing")
}

func TestAttemptedAtIsReadAsPsqlPrintsIt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2026-01-31T08:00:00.123456Z", "2026-01-31 08:00:00.123456+00", "2026-01-31 13:30:00.123456+05:30"} {
		at, err := parseTime("--attempted-at", text)
		require.NoError(t, err, text)
		assert.Equal(t, "2026-01-31T08:00:00.123456Z", at.UTC().Format(time.RFC3339Nano), text)
	}
	_, err := parseTime("--attempted-at", "31.1.2026")
	require.Error(t, err)
}
