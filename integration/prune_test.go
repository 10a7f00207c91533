package integration

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fencectl/fencectl/internal/procedures"
)

// leaveRecords leaves one record of each kind that prune may take, of the resource.
func (s *session) leaveRecords(resource string) {
	s.t.Helper()
	token := s.takes(resource)
	s.db.expire(resource)
	s.gets("accepted", publish(token, "{}", keyed("k"))) // late, and with a key
	s.gets("seized", seize(resource, token.Generation, "operator"))
	s.gets("rejected: superseded", check(token))
}

func kinds(n int64) map[string]int64 {
	return map[string]int64{"publication_key": n, "late_publication": n, "rejection": n, "intervention": n}
}

func pruneTakesOld(db *Database) {
	a := db.session()
	a.leaveRecords("old")
	a.leaveRecords("young")
	assert.Equal(db.t, kinds(0), a.gets("pruned", prune(time.Hour, 100)).Pruned)
	db.age("old", 2*time.Hour)
	assert.Equal(db.t, kinds(1), a.gets("pruned", prune(time.Hour, 100)).Pruned)
	assert.Equal(db.t, kinds(0), a.gets("pruned", prune(time.Hour, 100)).Pruned)
	for table := range kinds(1) {
		assert.EqualValues(db.t, 1, db.count(table), table)
	}
	assert.Len(db.t, db.rejections("young"), 1)
}

func pruneKeepsLeases(db *Database) {
	a := db.session()
	a.leaveRecords("seized")
	a.gets("accepted", publish(a.takes("released"), "{}", thenRelease))
	a.gets("accepted", publish(a.takes("expired"), "{}"))
	a.gets("raised", raiseFloor("unused", 10))
	for _, resource := range []string{"seized", "released", "expired", "unused"} {
		db.age(resource, 20*365*24*time.Hour)
	}
	a.gets("pruned", prune(time.Hour, 100))
	assert.EqualValues(db.t, 4, db.count("lease"))
	assert.EqualValues(db.t, 4, db.count("lease_term"))
	assert.EqualValues(db.t, 3, db.count("publication"))
	assert.EqualValues(db.t, 2, a.takes("expired").Generation)
}

func pruneKeepsLiveKeys(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("accepted", publish(token, "{}", keyed("k")))
	db.age("r", 2*time.Hour) // run out, too: nobody has taken over
	assert.Zero(db.t, a.gets("pruned", prune(time.Hour, 100)).Pruned["publication_key"])
	a.gets("replayed", publish(token, "{}", keyed("k")))
	a.gets("rejected: key_conflict", publish(token, "another", keyed("k")))
}

func pruneTakesDeadKeys(db *Database) {
	a := db.session()
	for resource, over := range map[string]func(procedures.Token){
		"released": func(token procedures.Token) { a.gets("released", release(token)) },
		"taken":    func(procedures.Token) { db.expire("taken"); a.takes("taken") },
		"seized":   func(token procedures.Token) { a.gets("seized", seize("seized", token.Generation, "operator")) },
	} {
		token := a.takes(resource)
		a.gets("accepted", publish(token, "{}", keyed("k")))
		over(token)
		db.age(resource, 2*time.Hour)
	}
	assert.EqualValues(db.t, 3, a.gets("pruned", prune(time.Hour, 100)).Pruned["publication_key"])
}

func pruneInBatches(db *Database) {
	a := db.session()
	for i := range 5 {
		resource := fmt.Sprint("r", i)
		a.leaveRecords(resource)
		db.age(resource, 2*time.Hour)
	}
	assert.Equal(db.t, kinds(2), a.gets("pruned", prune(time.Hour, 2)).Pruned)
	assert.Equal(db.t, kinds(2), a.gets("pruned", prune(time.Hour, 2)).Pruned)
	assert.Equal(db.t, kinds(1), a.gets("pruned", prune(time.Hour, 2)).Pruned)
}

func pruneSkipsLocked(db *Database) {
	a, holder := db.session().impatient(), db.session()
	a.leaveRecords("held")
	a.leaveRecords("free")
	db.age("held", 2*time.Hour)
	db.age("free", 2*time.Hour)
	holder.begins().locks("held", "publication_key", "late_publication", "rejection", "intervention")
	assert.Equal(db.t, kinds(1), a.gets("pruned", prune(time.Hour, 100)).Pruned)
	holder.commits()
	assert.Equal(db.t, kinds(1), a.gets("pruned", prune(time.Hour, 100)).Pruned)
}

func pruneKeepsCounting(db *Database) {
	a := db.session()
	token := takenOver(db)
	a.gets("rejected: superseded", check(token))
	db.age("r", 50*time.Second)
	a.gets("rejected: superseded", check(token))
	assert.Zero(db.t, a.gets("pruned", prune(30*time.Second, 100)).Pruned["rejection"])
}

func pruneBesideTraffic(db *Database) {
	stale := takenOver(db)
	sessions := db.manySessions(6)
	var working atomic.Int32
	working.Store(4)
	together(sessions, func(i int, s *session) {
		if i >= 4 {
			for working.Load() > 0 {
				s.gets("pruned", prune(time.Millisecond, 10))
			}
			return
		}
		defer working.Add(-1)
		for n := range 60 {
			token := s.takes(s.name)
			s.gets("accepted", publish(token, "{}", keyed("k")))
			s.gets("accepted", publish(token, "{}", keyed(fmt.Sprint(n)), thenRelease))
			s.gets("rejected: superseded", check(stale))
		}
	})
	for i := range 4 {
		assert.EqualValues(db.t, 120, db.row(sessions[i].name).Revision)
	}
}
