package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

// eachTSQL runs a test on each server of the run that speaks T-SQL, on a database of its own: for what only
// callers of such a server can do.
func eachTSQL(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	t.Parallel()
	eachEngine(t, func(t *testing.T, e engine) {
		if _, ok := e.(*sqlServer); !ok {
			t.Skipf("not run on %s: it is about T-SQL", e.name())
		}
		test(t, newDatabase(t, e))
	})
}

// bare is the session's connection as the driver gives it: nothing begins a transaction for check and require.
func (s *session) bare() procedures.SQLServer { return s.connection.(*sqlServerConnection).calls }

// number reads one number in the session.
func (s *session) number(query string) (n int64) {
	s.t.Helper()
	rows, err := s.connection.(*sqlServerConnection).conn.QueryContext(s.db.ctx, query)
	require.NoError(s.t, err)
	defer rows.Close()
	require.True(s.t, rows.Next(), query)
	require.NoError(s.t, rows.Scan(&n))
	return n
}

// report makes a table of the caller's.
func (d *Database) report() {
	d.t.Helper()
	d.does("CREATE SCHEMA app")
	d.does("CREATE TABLE app.report (id integer PRIMARY KEY, content text)")
}

func (d *Database) reports() (n int64) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error { return scan(&n) }, "SELECT count(*) FROM app.report")
	return n
}

func TestCheckWithoutATransactionIsRefused(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		a := db.session()
		token := a.takes("r")
		_, err := a.bare().Check(db.ctx, token, "")
		assert.Equal(t, procedures.KindNoTransaction, procedures.Classify(err).Kind, err)
		_, err = a.bare().Require(db.ctx, token, "")
		assert.Equal(t, procedures.KindNoTransaction, procedures.Classify(err).Kind, err)
	})
}

// Under implicit transactions, as pyodbc and JDBC have them, check's own first read begins the transaction.
func TestCheckUnderImplicitTransactionsHoldsTheRow(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		a, b := db.session(), db.session().impatient()
		token := a.takes("r")
		db.endLease("r")
		a.does("SET IMPLICIT_TRANSACTIONS ON")
		got, err := a.bare().Check(db.ctx, token, "")
		require.NoError(t, err)
		assert.Equal(t, procedures.OK, got.Outcome)
		b.gets("busy", acquire("r", "b"))
		a.does("COMMIT TRANSACTION")
		a.does("SET IMPLICIT_TRANSACTIONS OFF")
		b.gets("acquired", acquire("r", "b"))
	})
}

// The effect of these must not wait for a commit that the client has forgotten.
func TestAcquireRenewAndReleaseTakeEffectUnderImplicitTransactions(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		a, other := db.session(), db.session().impatient()
		a.does("SET IMPLICIT_TRANSACTIONS ON")
		token := a.takes("r")
		other.gets("held", acquire("r", "b"))
		a.gets("renewed", renewFor(token, 10*minute))
		assert.Equal(t, 10*minute, db.row("r").TTLMS)
		a.gets("released", release(token))
		other.gets("acquired", acquire("r", "b"))
		assert.Zero(t, a.number("SELECT @@TRANCOUNT"))
		a.does("SET IMPLICIT_TRANSACTIONS OFF")
	})
}

func TestNoRoutineEndsTheCallersTransaction(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		db.report()
		a := db.session().begins()
		a.does("INSERT INTO app.report VALUES (1, 'mine')")
		alive := func(want string, c call) answer {
			t.Helper()
			got := a.gets(want, c)
			require.EqualValues(t, 1, a.number("SELECT @@TRANCOUNT"), c.name)
			return got
		}
		got := alive("acquired", acquire("r", "a", requested(uuid.New())))
		token := procedures.Token{Resource: "r", Owner: "a", Generation: *got.Generation}
		alive("held", acquire("r", "b"))
		alive("renewed", renew(token))
		alive("ok", check(token))
		alive("ok", requires(token))
		alive("accepted", publish(token, "{}", keyed("k")))
		alive("unknown", diagnose(token, nil))
		alive("released", release(token))
		alive("refused: released", renew(token))
		alive("seized", seize("r", token.Generation, "operator"))
		alive("raised", raiseFloor("r", 10))
		alive("removed", remove("r", token.Generation+1, "operator"))
		alive("raised", raiseFloor("", 20))
		alive("pruned", prune(time.Hour, 10))
		a.rollsBack()
		assert.Zero(t, db.reports())
		assert.Zero(t, db.count("lease"))
		assert.Zero(t, db.count("rejection"))
	})
}

// A transaction that an error has doomed can write nothing any more, and a call in it changes nothing.
func TestACallInADoomedTransactionChangesNothing(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		db.report()
		a := db.session()
		err := a.execute(db.ctx, `
			SET XACT_ABORT ON;
			BEGIN TRANSACTION;
			INSERT INTO app.report VALUES (1, 'mine');
			BEGIN TRY
			    INSERT INTO app.report VALUES (1, 'again');
			END TRY
			BEGIN CATCH
			    EXEC fence.acquire N'r', N'a', 60000;
			END CATCH;`)
		assert.Error(t, err)
		a.rollsBack()
		a.does("SET XACT_ABORT OFF")
		assert.Zero(t, db.count("lease"))
		assert.Zero(t, db.reports())
		a.takes("r")
	})
}

func TestAnswersCanBeInsertedIntoATable(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		a := db.session()
		assert.EqualValues(t, 1, a.number(`
			DECLARE @answer TABLE (outcome nvarchar(16), generation bigint, lease_until datetime2(7), remaining_ms bigint,
			                       holder nvarchar(255), holder_attributes nvarchar(max));
			INSERT INTO @answer EXEC fence.acquire N'r', N'a', 60000;
			SELECT generation FROM @answer WHERE outcome = N'acquired'`))
		assert.EqualValues(t, 1, a.number(`
			DECLARE @answer TABLE (outcome nvarchar(16), reason nvarchar(32), observed_generation bigint,
			                       observed_owner nvarchar(255), observed_lease_until datetime2(7), observed_at datetime2(7));
			INSERT INTO @answer EXEC fence.release N'r', N'b', 1;
			SELECT observed_generation FROM @answer WHERE outcome = N'refused' AND reason = N'wrong_owner'`))
		assert.EqualValues(t, 1, db.row("r").Generation)
		assert.EqualValues(t, 1, db.count("rejection"))
	})
}

// An absent row cannot be locked, so the one who loses the race for it gets an error inside the routine, which
// must not cost the caller's transaction.
func TestALostRaceForANewNameLeavesTheCallersTransactionAlive(t *testing.T) {
	for _, c := range []struct {
		what   string
		loser  call
		expect string
	}{
		{"acquire", acquire("r", "b"), "held"},
		{"raise_floor", raiseFloor("r", 10), "raised"},
	} {
		t.Run(c.what, func(t *testing.T) {
			eachTSQL(t, func(t *testing.T, db *Database) {
				db.report()
				a, b := db.session().begins(), db.session().begins()
				b.does("INSERT INTO app.report VALUES (1, 'mine')")
				a.takes("r")
				waiting := b.waitsOn(c.loser)
				a.commits()
				waiting.gets(c.expect)
				assert.EqualValues(t, 1, b.number("SELECT @@TRANCOUNT"))
				b.commits()
				assert.EqualValues(t, 1, db.reports())
			})
		})
	}
}

// T-SQL cuts an argument that is too long for its parameter without a word.
func TestNamesThatDifferAfterTheLastUnitAreRefused(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		a := db.session()
		longest := strings.Repeat("x", 255)
		a.takesAs(longest, longest)
		for _, tail := range []string{"y", "yz", " ", strings.Repeat("y", 5000)} {
			a.gets("invalid_argument: resource", acquire(longest+tail, "a"))
			a.gets("invalid_argument: owner", acquire("r", longest+tail))
			a.gets("invalid_argument: operation_key", publish(
				procedures.Token{Resource: longest, Owner: longest, Generation: 1}, "{}", keyed(longest+tail)))
		}
		assert.EqualValues(t, 1, db.count("lease"))
		a.gets("acquired", acquire("a", "a"))
		a.gets("acquired", acquire("A", "A"))
		a.gets("invalid_argument: resource", acquire("a ", "a"))
	})
}

// A client that left its session at a level of its own gets the same answers, and no error.
func TestAWholeLifeAtReadUncommitted(t *testing.T) {
	eachTSQL(t, func(t *testing.T, db *Database) {
		lifeInTransactions(db, isolation("READ UNCOMMITTED"))
	})
}
