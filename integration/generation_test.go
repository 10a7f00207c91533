package integration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

func oneAbove(db *Database) {
	a := db.session()
	for i := range 5 {
		token := a.takes("r")
		assert.EqualValues(db.t, i+1, token.Generation)
		if i%2 == 0 {
			a.gets("released", release(token))
		} else {
			db.expire("r")
		}
	}
}

func rolledBackNumber(db *Database) {
	a := db.session()
	a.begins()
	token := a.takes("r")
	a.rollsBack()
	assert.Equal(db.t, token.Generation, a.takes("r").Generation, "nobody can have used it")
}

func seizureTakesNumber(db *Database) {
	a := db.session()
	token := a.takes("r", saying(`{"pod": "a-1"}`))
	got := a.gets("seized", seize("r", token.Generation, "operator"))
	assert.Equal(db.t, token.Generation+1, *got.Generation)
	row := db.row("r")
	assert.Nil(db.t, row.Owner)
	assert.Nil(db.t, row.AttributesAsSet)
	assert.Equal(db.t, *got.Generation, row.TermGeneration)
	a.gets("rejected: superseded", publish(token, "too late"))
	assert.Equal(db.t, token.Generation+2, a.takes("r").Generation)
}

func seizureOfTheDead(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	a.gets("seized", seize("r", token.Generation, "operator"))
	next := a.takes("r")
	assert.Equal(db.t, token.Generation+2, next.Generation)
	a.gets("released", release(next))
	got := a.gets("seized", seize("r", next.Generation, "operator"))
	assert.Equal(db.t, next.Owner, *got.PreviousOwner)
	got = a.gets("seized", seize("r", *got.Generation, "operator"))
	assert.Nil(db.t, got.PreviousOwner)
	assert.Equal(db.t, next.Generation+3, a.takes("r").Generation)
}

func seizureWaits(db *Database) {
	a, operator := db.session(), db.session()
	token := a.takes("r")
	a.begins().gets("ok", check(token))
	waiting := operator.waitsOn(seize("r", token.Generation, "operator"))
	a.commits()
	waiting.gets("seized")
	a.gets("rejected: superseded", check(token))
}

func aboveRemoved(db *Database) {
	a := db.session()
	for range 3 {
		token := a.takes("r")
		a.gets("released", release(token))
		got := a.gets("removed", remove("r", token.Generation, "operator"))
		assert.Equal(db.t, token.Generation, *got.FloorAfter)
		assert.Equal(db.t, token.Generation+1, a.takes("r").Generation)
		db.expire("r")
	}
}

func removeWaits(db *Database) {
	a, operator := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	a.begins().gets("ok", check(token))
	waiting := operator.waitsOn(remove("r", token.Generation, "operator"))
	db.session().gets("renewed", renew(token))
	a.commits()
	waiting.gets("held")
	a.gets("ok", check(token))

	db.expire("r")
	a.begins().gets("ok", check(token))
	waiting = operator.waitsOn(remove("r", token.Generation, "operator"))
	a.commits()
	waiting.gets("removed")
	a.gets("rejected: not_found", check(token))
}

func removeForgets(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("accepted", publish(token, "{}", keyed("k"), thenRelease))
	a.gets("accepted", publish(a.takes("s"), "{}", keyed("k")))
	a.gets("removed", remove("r", token.Generation, "operator"))
	for _, table := range []string{"lease", "lease_term", "publication", "publication_key"} {
		assert.EqualValues(db.t, 1, db.count(table), "%s: only that of s", table)
	}
	a.gets("rejected: not_found", publish(token, "{}", keyed("k")))
}

func removesPlaceholder(db *Database) {
	a := db.session()
	for _, floor := range []int64{10, 20} {
		a.gets("raised", raiseFloor("r", floor))
		a.gets("removed", remove("r", 0, "operator"))
	}
	assert.EqualValues(db.t, 21, a.takes("r").Generation)
}

func floorOfOne(db *Database) {
	a := db.session()
	r, s := a.takes("r"), a.takes("s")
	a.gets("raised", raiseFloor("r", 100))
	a.gets("released", release(r))
	a.gets("released", release(s))
	assert.EqualValues(db.t, 101, a.takes("r").Generation)
	assert.EqualValues(db.t, 2, a.takes("s").Generation)

	a.gets("raised", raiseFloor("t", 100))
	assert.EqualValues(db.t, 101, a.takes("t").Generation)

	// It goes on from there, and through seizures and removals too.
	a.gets("raised", raiseFloor("r", 1000))
	got := a.gets("seized", seize("r", 101, "operator"))
	assert.EqualValues(db.t, 1001, *got.Generation)
	a.gets("raised", raiseFloor("r", 5000))
	got = a.gets("removed", remove("r", 1001, "operator"))
	assert.EqualValues(db.t, 5000, *got.FloorAfter)
	assert.EqualValues(db.t, 5001, a.takes("r").Generation)
}

func floorOfAll(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("raised", raiseFloor("", 100))
	a.gets("released", release(token))
	assert.EqualValues(db.t, 101, a.takes("r").Generation)
	assert.EqualValues(db.t, 101, a.takes("s").Generation)
	db.expire("s")
	assert.EqualValues(db.t, 102, a.takes("s").Generation)
}

func floorKeepsHolder(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("raised", raiseFloor("r", 100))
	a.gets("raised", raiseFloor("", 100))
	a.gets("accepted", publish(token, "{}"))
	a.gets("renewed", renew(token))
	db.session().gets("held", acquire("r", "b"))
}

func floorWaitsForAcquire(resource string) func(*Database) {
	return func(db *Database) {
		a, operator := db.session(), db.session()
		a.begins()
		token := a.takes("r")
		waiting := operator.waitsOn(raiseFloor(resource, 100))
		a.commits()
		waiting.gets("raised")
		assert.EqualValues(db.t, 1, token.Generation)
		a.gets("released", release(token))
		assert.EqualValues(db.t, 101, a.takes("r").Generation)
	}
}

func acquireWaitsForFloor(resource string) func(*Database) {
	return func(db *Database) {
		a, operator := db.session(), db.session()
		a.gets("released", release(a.takes("r")))
		operator.begins().gets("raised", raiseFloor(resource, 100))
		waiting := a.waitsOn(acquire("r", "a"))
		operator.commits()
		assert.EqualValues(db.t, 101, *waiting.gets("acquired").Generation)
	}
}

func acquireSeesFloorAfterItsWait(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	a.begins().gets("ok", check(token))
	db.endLease("r")
	waiting := b.waitsOn(acquire("r", "b"))
	db.session().gets("raised", raiseFloor("", 100))
	a.commits()
	assert.EqualValues(db.t, 101, *waiting.gets("acquired").Generation)
}

func acquireWaitsForRemove(db *Database) {
	a, operator := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	operator.begins().gets("removed", remove("r", token.Generation, "operator"))
	waiting := a.waitsOn(acquire("r", "a"))
	operator.commits()
	assert.Equal(db.t, token.Generation+1, *waiting.gets("acquired").Generation)
}

func floorWaitsForRemove(db *Database) {
	a, operator := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	operator.begins().gets("removed", remove("r", token.Generation, "operator"))
	waiting := a.waitsOn(raiseFloor("r", 100))
	operator.commits()
	waiting.gets("raised")
	assert.EqualValues(db.t, 101, a.takes("r").Generation)
}

// grant is a number that was given out.
type grant struct {
	resource   string
	generation int64
}

// history is what the clients of a random run were told.
type history struct {
	mu        sync.Mutex
	grants    []grant
	published []published
	other     []string // what no client should be told
}

type published struct {
	grant
	at time.Time
}

// manyClients lets clients do whatever comes to their minds to a few resources, each call in a transaction
// of the level, and looks at what they were told: numbers are unique, and results follow the numbers.
func manyClients(level isolation) func(*Database) {
	return func(db *Database) {
		const clients = 12
		acts := 200
		if testing.Short() {
			acts = 30
		}
		h := &history{}
		seed := rand.Uint64()
		db.t.Logf("seed %d", seed)
		together(db.manySessions(clients), func(i int, s *session) {
			c := &client{
				session: s, history: h, level: level,
				random: rand.New(rand.NewPCG(seed, uint64(i))), last: map[string]procedures.Token{},
			}
			// An order of a few results would prove little.
			for n := 0; n < acts || h.results() < 20 && db.ctx.Err() == nil; n++ {
				c.acts(fmt.Sprint("r", c.random.IntN(3)))
			}
		})
		h.holds(db.t)
	}
}

// client is one of the many.
type client struct {
	*session
	*history
	level  isolation
	random *rand.Rand
	last   map[string]procedures.Token // its latest token of each resource, alive or not
}

// acts does one thing, with a token that may have lost its worth long ago.
func (c *client) acts(resource string) {
	token, has := c.last[resource]
	fence := []string{"refused: superseded", "refused: released", "refused: not_found"}
	switch n := c.random.IntN(20); {
	case n < 6 || !has:
		c.acquires(resource)
	case n < 9:
		c.publishes(token)
	case n < 14:
		c.letsTimePass(resource)
	case n < 15:
		c.tells(renew(token), append(fence, "renewed")...)
	case n < 16:
		c.tells(release(token), append(fence, "released", "replayed")...)
	case n < 17:
		if got := c.tells(seize(resource, token.Generation, c.name), "seized", "replayed", "refused"); got.Outcome == "seized" {
			c.granted(resource, *got.Generation)
		}
	case n < 18:
		c.tells(remove(resource, token.Generation, c.name), "removed", "held", "not_found")
	case n < 19:
		c.tells(raiseFloor(resource, token.Generation+c.random.Int64N(3)), "raised", "unchanged")
	default:
		c.tells(raiseFloor("", token.Generation+c.random.Int64N(3)), "raised", "unchanged")
	}
}

func (c *client) acquires(resource string) {
	if got := c.tells(acquire(resource, c.name), "acquired", "held"); got.Outcome == "acquired" {
		c.last[resource] = procedures.Token{Resource: resource, Owner: c.name, Generation: *got.Generation}
		c.granted(resource, *got.Generation)
	}
}

func (c *client) publishes(token procedures.Token) {
	got := c.tells(publish(token, "{}"), "accepted", "rejected: superseded", "rejected: released", "rejected: not_found")
	if got.Outcome == "accepted" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.published = append(c.published, published{grant{token.Resource, token.Generation}, *got.PublishedAt})
	}
}

func (c *client) letsTimePass(resource string) {
	if err := c.db.shift(c.db.ctx, leaseTerm, resource, time.Minute, "lease_until"); err != nil {
		c.notes("let time pass", err.Error())
	}
}

// tells makes a call in a transaction, which it sometimes rolls back, and notes a verdict that is none of
// those allowed. Any call may have to be retried; then, and after a rollback, there is no answer.
func (c *client) tells(made call, allowed ...string) answer {
	c.begins(c.level)
	got, err := made.make(c.db.ctx, c.connection)
	if v := verdict(got, err); v != "retry" && !slices.Contains(allowed, v) {
		c.notes(made.name, fmt.Sprintf("%s (%v)", v, err))
	}
	if err != nil || c.random.IntN(8) == 0 {
		c.rollsBack()
		return answer{}
	}
	if err := c.commit(c.db.ctx); err != nil {
		if verdict(answer{}, err) != "retry" {
			c.notes("commit "+made.name, err.Error())
		}
		return answer{}
	}
	return got
}

func (h *history) notes(what, happened string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.other = append(h.other, what+": "+happened)
}

func (h *history) granted(resource string, generation int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants = append(h.grants, grant{resource, generation})
}

func (h *history) results() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.published)
}

// holds looks at the whole history.
func (h *history) holds(t *testing.T) {
	t.Helper()
	assert.Empty(t, h.other)
	require.NotEmpty(t, h.grants)
	seen := map[grant]bool{}
	for _, g := range h.grants {
		require.False(t, seen[g], "%v was given out twice", g)
		seen[g] = true
	}
	slices.SortFunc(h.published, func(a, b published) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), a.at.Compare(b.at))
	})
	for i := 1; i < len(h.published); i++ {
		before, after := h.published[i-1], h.published[i]
		if before.resource == after.resource {
			require.LessOrEqual(t, before.generation, after.generation, "%v replaced %v", after, before)
		}
	}
	t.Logf("%d numbers given out, %d results accepted", len(h.grants), len(h.published))
}
