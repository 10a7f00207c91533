package codegen

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

// TestTheCallersAreAsGenerated compares gen/ with what the routines make of it now.
func TestTheCallersAreAsGenerated(t *testing.T) {
	t.Parallel()
	files, err := EmitFence(fenceRoutines(t, Postgres), fenceRoutines(t, MSSQL))
	require.NoError(t, err)
	root := filepath.Join("..", "..")
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, content, 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(content), string(got), "%s: write it with go test ./internal/codegen -run TestTheCallersAreAsGenerated -update", name)
		assert.True(t, IsGenerated(got), name)
	}
	found, err := filepath.Glob(filepath.Join(root, "gen", "*", "*.go"))
	require.NoError(t, err)
	for _, path := range found {
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		assert.Contains(t, files, filepath.ToSlash(name), "left over")
	}
}

// contract is the fence's routines in short: a name and its documentation, parameters, columns. A ? after a type says
// that it may be NULL, = gives the default, words stand after a bar.
const contract = `
acquire: takes the lease of a resource and gives out its next generation, if nobody holds it.
 resource text; owner text; ttl_ms int64; request_id uuid? =NULL; attributes json? =NULL
 outcome text |acquired held replayed; generation int64?; lease_until instant; remaining_ms int64; holder text?; holder_attributes json?
renew: lets a lease last for ttl_ms from now, whether that is longer or shorter than before.
 TOKEN; ttl_ms int64
 outcome text |renewed refused; REASON |not_found superseded ahead_of_issuer wrong_owner released; lease_until instant?; remaining_ms int64?; OBSERVED
release: gives a lease back, so that another owner need not wait for it to run out.
 TOKEN
 outcome text |released replayed refused; REASON |not_found superseded ahead_of_issuer wrong_owner; OBSERVED
publish: stores a result, if the caller's acquisition of the resource still counts.
 TOKEN; payload long; content_type text ='application/json'; operation_key text? =NULL; POLICY; source_as_of instant? =NULL; max_source_age_ms int64? =NULL; then_release bool =false
 outcome text |accepted replayed rejected; REASON |not_found superseded ahead_of_issuer wrong_owner released expired stale_source key_conflict; published_at instant?; revision int64?; late_ms int64?; attempted_at instant; OBSERVED
check: fences the caller's own writes: holds the lease row until the caller's transaction ends, if the caller's acquisition still counts.
 TOKEN; POLICY
 outcome text |ok rejected; REASON |not_found superseded ahead_of_issuer wrong_owner released expired; late_ms int64?; OBSERVED
require: fences the caller's own writes like check, and raises an error where check would answer rejected.
 TOKEN; POLICY
 outcome text |ok; REASON |not_found superseded ahead_of_issuer wrong_owner released expired; late_ms int64?; OBSERVED
diagnose: explains why the caller's own conditional UPDATE changed nothing: the read that follows it.
 TOKEN; attempted_at instant? =NULL; POLICY
 reason text |superseded ahead_of_issuer wrong_owner released expired unknown; certain bool; OBSERVED
seize: ends an acquisition by an operator's decision: gives out a new generation that has no owner.
 resource text; generation int64; by text; note long? =NULL
 outcome text |seized replayed refused; generation int64?; previous_owner text?; OBSERVED
raise_floor: makes later acquisitions start above a number: after a restore, or a move from another database.
 resource text?; at_least int64
 outcome text |raised unchanged; floor_before int64; floor_after int64
remove: forgets a resource that is no longer used: its lease, its current publication and its operation keys.
 resource text; generation int64; by text; note long? =NULL
 outcome text |removed held not_found; floor_after int64?
prune: deletes old records, a batch of each kind a call: repeat it until every count is below the batch.
 older_than_ms int64; batch int32 =1000
 table_name text; removed int64
about: says what is deployed here, so that a caller can tell whether it knows this contract.

 contract_version int32; engine text; engine_version text; schema_version int64; timeline_source text`

// fenceRoutines reads the contract for one engine.
func fenceRoutines(t *testing.T, e Engine) []Routine {
	t.Helper()
	text := strings.NewReplacer(
		"TOKEN", "resource text; owner text; generation int64",
		"POLICY", "policy text ='until_superseded' |until_superseded unexpired",
		"REASON", "reason text?",
		"OBSERVED", "observed_generation int64?; observed_owner text?; observed_lease_until instant?; observed_at instant?",
	).Replace(contract)
	lines := strings.Split(text, "\n")[1:]
	require.Zero(t, len(lines)%3)
	var routines []Routine
	for ; len(lines) > 0; lines = lines[3:] {
		name, doc, _ := strings.Cut(lines[0], ": ")
		r := Routine{Engine: e, Schema: "fence", Name: name, Kind: Function, Doc: strings.ToUpper(doc[:1]) + doc[1:], Result: Result{Cardinality: OneRow}}
		if e == MSSQL {
			r.Kind = Procedure
		}
		if name == "prune" {
			r.Result.Cardinality = Rows
		}
		for _, one := range split(lines[1]) {
			p := readParam(e, one)
			if e == Postgres {
				p.Name = "p_" + p.Name
			}
			r.Params = append(r.Params, p)
		}
		for _, one := range split(lines[2]) {
			p := readParam(e, one)
			r.Result.Columns = append(r.Result.Columns, Column{Name: p.Name, Type: p.Type, Nullable: p.Nullable, Words: p.Words})
		}
		routines = append(routines, r)
	}
	return routines
}

func split(line string) []string {
	if line = strings.TrimSpace(line); line == "" {
		return nil
	}
	return strings.Split(line, "; ")
}

func readParam(e Engine, text string) Param {
	text, words, _ := strings.Cut(text, "|")
	text, value, optional := strings.Cut(text, "=")
	name, kind, _ := strings.Cut(strings.TrimSpace(text), " ")
	kind, nullable := strings.CutSuffix(kind, "?")
	p := Param{Name: name, Mode: In, Nullable: nullable, Type: readType(e, kind), Words: strings.Fields(words)}
	if optional {
		value = strings.TrimSpace(value)
		p.Default = &value
	}
	return p
}

func readType(e Engine, kind string) Type {
	pg := map[string]string{"text": "text", "long": "text", "int64": "bigint", "int32": "integer", "uuid": "uuid", "json": "jsonb", "instant": "timestamptz", "bool": "boolean"}
	ms := map[string]string{"text": "nvarchar(256)", "long": "nvarchar(max)", "int64": "bigint", "int32": "int", "uuid": "uniqueidentifier", "json": "nvarchar(max)", "instant": "datetime2(7)", "bool": "bit"}
	if e == Postgres {
		return Type{Base: base(kind), SQL: pg[kind]}
	}
	t := Type{Base: base(kind), SQL: ms[kind]}
	switch {
	case strings.HasSuffix(t.SQL, "(max)"):
		t.Length = -1
	case kind == "text":
		t.Length = 256
	case kind == "instant":
		t.Scale = 7
	}
	return t
}

func base(kind string) Base {
	if kind == "long" {
		return Text
	}
	return Base(kind)
}
