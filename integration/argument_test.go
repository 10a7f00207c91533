package integration

import (
	"fmt"
	"math"
	"strings"

	"github.com/stretchr/testify/assert"

	"github.com/fencectl/fencectl/internal/procedures"
)

// argument is one parameter of a routine: its name, a value that is fine, and values that are not.
type argument struct {
	name string
	fine any
	bad  []any
}

// signature is a routine with its parameters, those that have a default included.
type signature struct {
	routine   string
	arguments []argument
}

func signatures() []signature {
	resource, owner := argument{"resource", "r", badNames()}, argument{"owner", "a", badNames()}
	generation := argument{"generation", int64(1), []any{nil, int64(0), int64(-1), int64(math.MinInt64)}}
	ttl := argument{"ttl_ms", minute, badDurations()}
	policy := argument{"policy", procedures.UntilSuperseded, []any{nil, "", "UNEXPIRED", "unexpired ", "none"}}
	by := argument{"by", "operator", badNames()}
	free := func(name string) argument { return argument{name: name} }
	return []signature{
		{"acquire", []argument{resource, owner, ttl, free("request_id"),
			{"attributes", nil, []any{`[]`, `"text"`, `null`, `{"long": "` + strings.Repeat("x", 4096) + `"}`}}}},
		{"renew", []argument{resource, owner, generation, ttl}},
		{"release", []argument{resource, owner, generation}},
		{"publish", []argument{resource, owner, generation,
			{"payload", "{}", []any{nil}},
			{"content_type", "text/plain", badNames()},
			{"operation_key", nil, badNames()[1:]}, // NULL is none
			policy,
			free("source_as_of"),
			{"max_source_age_ms", nil, badDurations()[1:]}, // NULL is no limit
			{"then_release", false, []any{nil}}}},
		{"check", []argument{resource, owner, generation, policy}},
		{"require", []argument{resource, owner, generation, policy}},
		{"diagnose", []argument{resource, owner, generation, free("attempted_at"), policy}},
		{"seize", []argument{resource, generation, by, free("note")}},
		{"raise_floor", []argument{
			{"resource", "r", badNames()[1:]}, // NULL is all of them
			{"at_least", int64(10), []any{nil, int64(-1), int64(math.MinInt64), int64(1<<62 + 1), int64(math.MaxInt64)}}}},
		{"remove", []argument{resource, {"generation", int64(1), []any{nil, int64(-1)}}, by, free("note")}},
		{"prune", []argument{
			{"older_than_ms", minute, badDurations()},
			{"batch", int32(10), []any{nil, int32(0), int32(-1), int32(100_001)}}}},
	}
}

func badDurations() []any {
	return []any{nil, int64(0), int64(-1), tenYears + 1, int64(math.MaxInt64), int64(math.MinInt64)}
}

// badNames are NULL, which comes first, and every class of name that some engine would not tell from another.
func badNames() []any {
	names := []any{nil, "", " ", strings.Repeat("x", 256), strings.Repeat("é", 256),
		strings.Repeat("😀", 128), strings.Repeat("😀", 127) + "xx"}
	for _, control := range controls() {
		names = append(names, control+"x", "x"+control+"x", "x"+control)
	}
	for _, blank := range blanks() {
		names = append(names, blank+"x", "x"+blank, blank)
	}
	return names
}

// controls are the ends of each range of control characters, and some between. U+0000 no client can send.
func controls() []string {
	return []string{"\u0001", "\t", "\n", "\r", "\u001f", "\u007f", "\u0080", "\u0085", "\u009f"}
}

func blanks() []string {
	return []string{
		"\u0020", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",
		"\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
	}
}

// goodNames are the longest, those with blanks inside, and those just beside what is refused.
func goodNames() []string {
	names := []string{
		"r", "report:42", "a b", "'; --", `back\slash`, "100%_", "$1", "Ünïcödé", "日本語", "😀", "e\u0301", "\u0301",
		strings.Repeat("x", 255), strings.Repeat("é", 255), strings.Repeat("日", 255),
		strings.Repeat("😀", 127) + "x", strings.Repeat("\U0010FFFF", 127),
		"!", "~", "\u00a1", "\u167f", "\u1681", "\u1fff", "\u200b", "\u2027", "\u202a", "\u202e", "\u2030", "\u205e",
		"\u2060", "\u2fff", "\u3001", "\ufeff", "\u180e", "\u00ad", "\ue000", "\uffff", "\U00010000",
	}
	for _, blank := range blanks() {
		names = append(names, "x"+blank+"x")
	}
	return names
}

func everyArgument() (behaviours []behaviour) {
	for _, s := range signatures() {
		for i, a := range s.arguments {
			if len(a.bad) > 0 {
				behaviours = append(behaviours, that(
					s.routine+" refuses what "+a.name+" must not be, before it looks at anything",
					func(db *Database) { refusesArgument(db, s, i) }))
			}
		}
		behaviours = append(behaviours, that(
			s.routine+" with arguments that are fine is no misuse",
			func(db *Database) { takesArguments(db, s) }))
	}
	return behaviours
}

// fine are values for all parameters that are fine.
func (s signature) fine() (values []any) {
	for _, a := range s.arguments {
		values = append(values, a.fine)
	}
	return values
}

// refusesArgument holds every table locked meanwhile: a call that looked would wait.
func refusesArgument(db *Database, s signature, i int) {
	wall, caller := db.session().begins(), db.session().impatient()
	for _, table := range tables() {
		wall.gets("done", lockTable(table))
	}
	name := s.arguments[i].name
	for _, bad := range s.arguments[i].bad {
		with := s.fine()
		with[i] = bad
		got, err := raw(s.routine, with...).make(db.ctx, caller.connection)
		assert.Equal(db.t, "invalid_argument: "+name, verdict(got, err), "%s = %.300q: %v", name, bad, err)
	}
	wall.rollsBack()
	for _, table := range tables() {
		assert.EqualValues(db.t, rowsAtFirst(table), db.count(table), table)
	}
}

func tables() []string {
	return []string{
		"lease", "lease_term", "floor", "epoch", "intervention", "publication", "publication_key", "late_publication", "rejection",
	}
}

func rowsAtFirst(table string) int64 {
	if table == "floor" || table == "epoch" {
		return 1
	}
	return 0
}

func takesArguments(db *Database, s signature) {
	db.session().takesAs("r", "a")
	db.session().gets("done", raw(s.routine, s.fine()...))
}

func refusesAgeWithoutSource(db *Database) {
	db.session().gets("invalid_argument: source_as_of",
		raw("publish", "r", "a", int64(1), "{}", "text/plain", nil, "until_superseded", nil, minute, false))
}

func refusesNul(db *Database) {
	a := db.session()
	for _, name := range []string{"\x00", "r\x00", "r\x00r"} {
		_, err := acquire(name, "a").make(db.ctx, a.connection)
		assert.Error(db.t, err, "%q", name)
	}
	assert.Zero(db.t, db.count("lease"))
}

func keepsNames(db *Database) {
	a := db.session()
	names := goodNames()
	for i, name := range names {
		got := a.gets("acquired", acquire(name, names[len(names)-1-i]))
		assert.EqualValues(db.t, 1, *got.Generation, "%q is new", name)
		token := procedures.Token{Resource: name, Owner: names[len(names)-1-i], Generation: 1}
		a.gets("accepted", publish(token, "{}", keyed(name), ofType(name)))
		a.gets("replayed", publish(token, "{}", keyed(name), ofType(name)))
		assert.Equal(db.t, token.Owner, *db.row(name).Owner)
		assert.Equal(db.t, name, db.published(name)[0].ContentType)
	}
	assert.EqualValues(db.t, len(names), db.count("lease"))
}

func tellsNamesApart(db *Database) {
	a := db.session()
	for i, alike := range [][2]string{
		{"a", "A"}, {"\u00e9", "e\u0301"}, {"ß", "ss"}, {"ｒ", "r"}, {"0", "٠"}, {"r", "r\u200b"}, {"r", "r\u00ad"}, {"a b", "a  b"},
	} {
		one, two := fmt.Sprint(i, alike[0]), fmt.Sprint(i, alike[1])
		token := a.takesAs(one, alike[0])
		assert.EqualValues(db.t, 1, a.takesAs(two, "x").Generation, "%q is not %q", two, one)
		a.gets("accepted", publish(token, "{}", keyed(alike[0])))
		a.gets("accepted", publish(token, "{}", keyed(alike[1])))
		token.Owner = alike[1]
		a.gets("rejected: wrong_owner", check(token))
	}
}

func (s *session) takesAs(resource, owner string) procedures.Token {
	s.t.Helper()
	got := s.gets("acquired", acquire(resource, owner))
	return procedures.Token{Resource: resource, Owner: owner, Generation: *got.Generation}
}

func lastsExactly(db *Database) {
	a := db.session()
	const day = 24 * 60 * minute
	for i, ttl := range []int64{1, 999, 1000, 24*day + 1, 25*day - 1, 365 * day, tenYears} {
		name := fmt.Sprint("r", i)
		got := a.gets("acquired", acquire(name, "a", lasting(ttl)))
		assert.Equal(db.t, ttl, *got.RemainingMS)
		row := db.row(name)
		assert.Equal(db.t, ttl, row.LeaseUntil.Sub(row.AcquiredAt).Milliseconds())
		assert.WithinDuration(db.t, row.LeaseUntil, *got.LeaseUntil, 0)

		token := procedures.Token{Resource: name, Owner: "a", Generation: 1}
		got = a.gets("renewed", renewFor(token, ttl))
		assert.Equal(db.t, ttl, *got.RemainingMS)
		row = db.row(name)
		assert.Equal(db.t, ttl, row.LeaseUntil.Sub(row.RenewedAt).Milliseconds())
		assert.Equal(db.t, ttl, row.TTLMS)
	}
}
