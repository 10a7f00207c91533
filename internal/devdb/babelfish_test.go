package devdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBabelfishSpeaksTSQLAndLeavesNothing(t *testing.T) {
	if _, err := InstalledBabelfish(); errors.Is(err, ErrNoBabelfish) {
		t.Skip("not run: there is no babelfish on this machine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := StartBabelfish(ctx, Options{Settings: TestSettings()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })

	require.NoError(t, server.CreateDatabase(ctx, "mine"))
	other, err := sql.Open("sqlserver", server.DSN("mine"))
	require.NoError(t, err)
	defer other.Close()
	var name string
	require.NoError(t, other.QueryRowContext(ctx, "SELECT DB_NAME()").Scan(&name))
	assert.Equal(t, "mine", name)
	require.NoError(t, other.Close())
	require.NoError(t, server.DropDatabase(ctx, "mine"))
	require.NoError(t, server.DropDatabase(ctx, "mine"))
	assert.NotEmpty(t, server.Version())
	assert.NotContains(t, fmt.Sprintf("%v %#v", server, server), server.loginWord)

	require.NoError(t, server.Stop(ctx))
	_, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.tdsPort))
	assert.Error(t, err)
	assert.NoDirExists(t, server.server.folder.path)
}

func TestBabelfishThatIsNotInstalledIsSaid(t *testing.T) {
	t.Setenv(BabelfishVariable, t.TempDir())
	_, err := StartBabelfish(t.Context(), Options{})
	require.ErrorIs(t, err, ErrNoBabelfish)
	assert.ErrorContains(t, err, BabelfishVariable)
}
