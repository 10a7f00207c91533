package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

// updates are what PostgreSQL counted on a table: an update that is HOT wrote no index.
type updates struct {
	all, hot int64
}

func (u updates) ratio() float64 { return float64(u.hot) / float64(u.all) }

// updatesOf reads a table's counters once the sessions have reported at least that many updates: they do so
// when they end.
func updatesOf(t *testing.T, db *Database, table string, atLeast int64) updates {
	t.Helper()
	var counted updates
	require.Eventually(t, func() bool {
		db.reads(func(scan func(...any) error) error { return scan(&counted.all, &counted.hot) }, `
			SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
			 WHERE schemaname = 'fence' AND relname = $1`, table)
		return counted.all >= atLeast
	}, 10*time.Second, 20*time.Millisecond, "%s: %+v", table, counted)
	return counted
}

// work renews, publishes and takes over again and again, on rounds × 20 leases, and ends its session.
func (d *Database) work(rounds int) {
	d.t.Helper()
	s := d.session()
	var tokens []procedures.Token
	for i := range resourcesAtWork {
		tokens = append(tokens, s.takes(fmt.Sprintf("report:%d", i)))
	}
	for range rounds {
		for i := range tokens {
			for range 3 {
				s.gets("renewed", renew(tokens[i]))
			}
			s.gets("accepted", publish(tokens[i], "a result", thenRelease))
			tokens[i] = s.takes(tokens[i].Resource)
		}
	}
	require.NoError(d.t, s.close(d.ctx))
}

const resourcesAtWork = 20

// A renewal that wrote the index too would bloat it by one entry each time. The server is the test's own: a
// writing transaction that stays open anywhere on a server keeps old row versions, and pages full.
func TestRenewalsPublishesAndTakeOversAreHOT(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, version string) {
		db, rounds := newServer(t, version, nil), 50
		db.work(rounds)
		each := int64(resourcesAtWork * rounds)
		assert.GreaterOrEqual(t, updatesOf(t, db, "lease_term", 5*each).ratio(), 0.95, "lease_term: renew, release, acquire")
		assert.GreaterOrEqual(t, updatesOf(t, db, "lease", 2*each).ratio(), 0.95, "lease: publish, acquire")
	})
}

// The measurement can tell: an index on what a renewal changes makes all of them cold.
func TestAnIndexOnTheLeasesEndWouldMakeRenewalsCold(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		db, rounds := create(), 5
		db.does("CREATE INDEX ON fence.lease_term (lease_until)")
		db.work(rounds)
		assert.Less(t, updatesOf(t, db, "lease_term", int64(5*resourcesAtWork*rounds)).ratio(), 0.5)
	})
}
