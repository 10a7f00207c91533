package integration

import (
	"github.com/stretchr/testify/assert"

	"github.com/fencectl/fencectl/internal/procedures"
)

func livesAtEveryLevel() (behaviours []behaviour) {
	for _, level := range []isolation{readCommitted, repeatableRead, serializable} {
		behaviours = append(behaviours,
			that("a whole life of a lease, a transaction a call, at "+string(level),
				func(db *Database) { lifeInTransactions(db, level) }),
			that("a whole life of a lease in one transaction at "+string(level),
				func(db *Database) { lifeInOneTransaction(db, level) }),
			that("what a transaction at "+string(level)+" did is undone by its rollback",
				func(db *Database) { rollbackUndoes(db, level) }))
	}
	return behaviours
}

func lifeInAutocommit(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("renewed", renew(token))
	a.gets("ok", check(token))
	a.gets("ok", requires(token))
	a.gets("accepted", publish(token, "{}", whileUnexpired))
	a.gets("released", release(token))
	a.gets("acquired", acquire("r", "b"))
}

func lifeInTransactions(db *Database, level isolation) {
	a := db.session()
	in := func(want string, c call) answer {
		a.begins(level)
		got := a.gets(want, c)
		a.commits()
		return got
	}
	got := in("acquired", acquire("r", "a"))
	token := procedures.Token{Resource: "r", Owner: "a", Generation: *got.Generation}
	in("held", acquire("r", "b"))
	in("renewed", renew(token))
	in("ok", check(token))
	in("ok", requires(token))
	in("accepted", publish(token, "{}"))
	in("released", release(token))
	in("acquired", acquire("r", "b"))
	in("rejected: superseded", publish(token, "too late"))
	in("refused: superseded", renew(token))
	in("superseded", diagnose(token, now(db)))
	in("seized", seize("r", token.Generation+1, "operator"))
	in("raised", raiseFloor("", 100))
	in("removed", remove("r", token.Generation+2, "operator"))
}

func lifeInOneTransaction(db *Database, level isolation) {
	a := db.session().begins(level)
	token := a.takes("r")
	a.gets("renewed", renew(token))
	a.gets("ok", check(token))
	a.gets("accepted", publish(token, "{}", keyed("k")))
	a.gets("replayed", publish(token, "{}", keyed("k")))
	a.gets("released", release(token))
	next := a.takes("r")
	a.gets("rejected: superseded", check(token))
	a.gets("seized", seize("r", next.Generation, "operator"))
	a.gets("raised", raiseFloor("", 100))
	last := a.takes("r")
	a.commits()
	assert.EqualValues(db.t, 101, last.Generation)
	a.gets("ok", check(last))
}

func rollbackUndoes(db *Database, level isolation) {
	a := db.session()
	token := a.takes("r")
	before := db.row("r")
	a.begins(level)
	a.gets("renewed", renew(token))
	a.gets("accepted", publish(token, "{}", thenRelease))
	a.gets("rejected: released", check(token))
	a.takes("r")
	a.gets("raised", raiseFloor("", 100))
	a.rollsBack()
	assert.Equal(db.t, before, db.row("r"))
	assert.Empty(db.t, db.published("r"))
	assert.Empty(db.t, db.rejections("r"))
	assert.EqualValues(db.t, 1, a.takes("s").Generation)
}

func snapshotsAtEveryLevel() (behaviours []behaviour) {
	for _, level := range []isolation{repeatableRead, serializable} {
		add := func(name string, holds func(db *Database, old *session)) {
			behaviours = append(behaviours, that(
				name+" at "+string(level),
				func(db *Database) { holds(db, db.session().begins(level)) }, snapshots))
		}
		for _, c := range tokenCalls() {
			add(c.name+" with a token younger than the snapshot, of a new name, is to be retried", func(db *Database, old *session) {
				old.looks()
				token := db.session().takes("r")
				old.gets("retry", c.with(token))
				old.rollsBack()
				old.gets(c.accepts, c.with(token))
			})
			add(c.name+" with a token younger than the snapshot, of an old name, is to be retried", func(db *Database, old *session) {
				db.session().takes("r")
				db.expire("r")
				old.looks()
				token := db.session().takes("r")
				old.gets("retry", c.with(token))
			})
			add(c.name+" whose row has changed since the snapshot is to be retried", func(db *Database, old *session) {
				token := db.session().takes("r")
				db.expire("r")
				old.looks()
				db.session().takes("r")
				old.gets("retry", c.with(token))
				old.rollsBack()
				old.begins(level).gets(c.refusal(procedures.Superseded), c.with(token))
			})
			for _, s := range situations() {
				if s.reason != procedures.NotFound && s.reason != procedures.AheadOfIssuer {
					add(c.name+" "+s.name+" stands as "+c.refusal(s.reason), func(db *Database, old *session) {
						token := s.token(db)
						old.looks()
						old.gets(c.refusal(s.reason), c.with(token))
					})
				}
			}
		}
		for _, c := range timedCalls() {
			add(c.name+" is misuse", func(db *Database, old *session) {
				old.gets("invalid_argument: policy", c.with(db.session().takes("r")))
			})
		}
		add("diagnose while unexpired is misuse", func(db *Database, old *session) {
			old.gets("invalid_argument: policy", diagnose(db.session().takes("r"), nil, procedures.Unexpired))
		})
		add("diagnose of a token younger than the snapshot is unknown", func(db *Database, old *session) {
			db.session().takes("r")
			db.expire("r")
			old.looks()
			token := db.session().takes("r")
			old.gets("unknown", diagnose(token, now(db)))
		})
		add("acquire of a name that was taken since the snapshot is to be retried", func(db *Database, old *session) {
			old.looks()
			db.session().takes("r")
			old.gets("retry", acquire("r", "a"))
		})
		add("acquire of a lease that was taken over since the snapshot is to be retried", func(db *Database, old *session) {
			db.session().takes("r")
			db.expire("r")
			old.looks()
			db.session().takes("r")
			old.gets("retry", acquire("r", "a"))
		})
		add("acquire of a lease that was renewed since the snapshot is to be retried", func(db *Database, old *session) {
			a := db.session()
			token := a.takes("r")
			db.expire("r")
			old.looks()
			a.gets("renewed", renew(token))
			old.gets("retry", acquire("r", "a"))
		})
		add("acquire below a floor that was raised since the snapshot is to be retried", func(db *Database, old *session) {
			old.looks()
			db.session().gets("raised", raiseFloor("", 100))
			old.gets("retry", acquire("r", "a"))
			old.rollsBack()
			assert.EqualValues(db.t, 101, *old.begins(level).gets("acquired", acquire("r", "a")).Generation)
		})
		add("acquire below its own floor that was raised since the snapshot is to be retried", func(db *Database, old *session) {
			a := db.session()
			a.gets("released", release(a.takes("r")))
			old.looks()
			a.gets("raised", raiseFloor("r", 100))
			old.gets("retry", acquire("r", "a"))
		})
		add("acquire of a name that was removed since the snapshot is to be retried", func(db *Database, old *session) {
			a := db.session()
			token := a.takes("r")
			a.gets("released", release(token))
			old.looks()
			a.gets("removed", remove("r", token.Generation, "operator"))
			old.gets("retry", acquire("r", "a"))
		})
		add("seize and remove of what has changed since the snapshot are to be retried", func(db *Database, old *session) {
			a := db.session()
			token := a.takes("r")
			db.expire("r")
			old.looks()
			a.takes("r")
			old.gets("retry", seize("r", token.Generation, "operator"))
			old.rollsBack()

			db.expire("r")
			old.begins(level).looks()
			a.takes("r")
			old.gets("retry", remove("r", token.Generation+1, "operator"))
		})
		add("raise_floor below a floor that was raised since the snapshot is to be retried", func(db *Database, old *session) {
			a := db.session()
			a.takes("r")
			old.looks()
			a.gets("raised", raiseFloor("", 100))
			a.gets("raised", raiseFloor("r", 100))
			old.gets("retry", raiseFloor("r", 50))
			old.rollsBack()
		})
		add("a take-over waits for a fenced transaction", func(db *Database, old *session) {
			a := db.session()
			token := a.takes("r")
			db.expire("r")
			old.gets("ok", check(token))
			waiting := a.waitsOn(acquire("r", "b"))
			old.commits()
			waiting.gets("acquired")
		})
	}
	return behaviours
}

// looks takes the transaction's snapshot.
func (s *session) looks() {
	s.t.Helper()
	s.does("SELECT count(*) FROM fence.epoch")
}
