package devdb

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestQuick(t *testing.T) {
	t0 := time.Now()
	s, err := StartPostgres(t.Context(), Options{Settings: TestSettings(), LocalOnly: true})
	require.NoError(t, err)
	t.Log(s, time.Since(t0), s.DataDir(), s.BinDir())
	require.NoError(t, s.CreateDatabase(t.Context(), "a b", ""))
	c, err := pgx.Connect(t.Context(), s.DSN("a b"))
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	t0 = time.Now()
	require.NoError(t, s.Stop(context.Background()))
	t.Log(time.Since(t0))
}
