package procs_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// finding is one place where a file breaks a rule. Subject is what the rule found: a table, a function, a
// section; exceptions name it.
type finding struct {
	file, rule, subject string
}

func (f finding) String() string { return fmt.Sprintf("%s: %s: %s", f.file, f.rule, f.subject) }

// routine is one file of procs/postgres, parsed, and what the rules about it compare with.
type routine struct {
	file     string
	source   string
	public   bool
	create   tree
	body     body
	keys     map[string][]string // primary key columns of each table that is keyed by resource
	findings []finding
}

func (r *routine) report(rule, subject string) {
	found := finding{file: r.file, rule: rule, subject: subject}
	if !slices.Contains(r.findings, found) {
		r.findings = append(r.findings, found)
	}
}

// lintRoutine checks one file against the rules. keys holds the primary key columns of each table that is
// keyed by resource.
func lintRoutine(file, source string, public bool, keys map[string][]string) ([]finding, error) {
	statements, err := parseSQL(source)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	r := &routine{file: file, source: source, public: public, keys: keys}
	if len(statements) != 1 || statements[0].child("CreateFunctionStmt") == nil {
		r.report("one function a file", fmt.Sprintf("%d statements", len(statements)))
		return r.findings, nil
	}
	r.create = statements[0].child("CreateFunctionStmt")
	if r.body, err = parseBody(source, r.language(), r.create); err != nil {
		return nil, fmt.Errorf("parse the body of %s: %w", file, err)
	}
	for _, rule := range []func(*routine){
		lintName, lintHeader, lintOptions, lintParameters,
		lintStatements, lintVariables, lintExpressions, lintClock,
		lintTables, lintResource, lintInserts, lintLocks, lintLockOrder, lintClockAfterLock,
	} {
		rule(r)
	}
	return r.findings, nil
}

func (r *routine) option(name string) (argument tree, given bool) {
	for _, option := range r.create.list("options") {
		if element := option.child("DefElem"); element.text("defname") == name {
			return element.child("arg"), true
		}
	}
	return nil, false
}

func (r *routine) language() string {
	language, _ := r.option("language")
	return language.child("String").text("sval")
}

// parameters returns the input parameters and the result columns.
func (r *routine) parameters() (in, out []tree) {
	for _, wrapped := range r.create.list("parameters") {
		parameter := wrapped.child("FunctionParameter")
		switch parameter.text("mode") {
		case "FUNC_PARAM_DEFAULT", "FUNC_PARAM_IN":
			in = append(in, parameter)
		case "FUNC_PARAM_TABLE":
			out = append(out, parameter)
		default:
			r.report("results are RETURNS TABLE columns", parameter.text("name"))
		}
	}
	return in, out
}

func hasParameter(parameters []tree, name string) bool {
	return slices.ContainsFunc(parameters, func(p tree) bool { return p.text("name") == name })
}

func lintName(r *routine) {
	name := r.create.words("funcname")
	want := strings.TrimSuffix(path.Base(r.file), ".sql")
	if strings.HasPrefix(want, "timeline_") { // two forms of one routine
		want = "timeline"
	}
	if !slices.Equal(name, []string{"fence", want}) {
		r.report("file name = routine name", strings.Join(name, "."))
	}
	if r.create["replace"] != true {
		r.report("re-applied with CREATE OR REPLACE", strings.Join(name, "."))
	}
}

// lintHeader wants the sections that apply, in their order, before anything else in the file.
func lintHeader(r *routine) {
	var header []string
	for line := range strings.Lines(r.source) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		header = append(header, line)
	}
	if len(header) == 0 || !regexp.MustCompile(`^-- [A-Z]`).MatchString(header[0]) {
		r.report("header", "first sentence")
	}
	in, out := r.parameters()
	sections := map[string]bool{
		"Parameters": len(in) > 0,
		"Result":     r.public,
		"Returns":    !r.public,
		"Outcomes":   r.public && hasParameter(out, "outcome"),
		"Reasons":    r.public && hasParameter(out, "reason"),
		"Locks":      true,
		"Errors":     true,
	}
	text := strings.Join(header, "")
	for section, wanted := range sections {
		if wanted != regexp.MustCompile(`(?m)^-- `+section+` `).MatchString(text) {
			r.report("header", section)
		}
	}
	if internal := strings.Contains(text, "\n-- Internal: "); internal == r.public {
		r.report("header", "Internal")
	}
	for _, parameter := range in {
		if name := parameter.text("name"); !strings.Contains(text, name) && !(strings.HasPrefix(name, "p_observed_") && strings.Contains(text, "p_observed_*")) {
			r.report("header", name)
		}
	}
}

// lintOptions: VOLATILE always; public routines run with the rights of their owner and a fixed search path,
// internal ones inside them.
func lintOptions(r *routine) {
	if volatility, _ := r.option("volatility"); volatility.child("String").text("sval") != "volatile" {
		r.report("VOLATILE", volatility.child("String").text("sval"))
	}
	if language := r.language(); language != "plpgsql" && !(language == "sql" && !r.public) {
		r.report("language", language)
	}
	security, given := r.option("security")
	definer := given && security.child("Boolean")["boolval"] == true
	if definer != r.public {
		r.report("SECURITY DEFINER", fmt.Sprint(definer))
	}
	var path []string
	set, given := r.option("set")
	if given {
		setting := set.child("VariableSetStmt")
		for _, argument := range setting.list("args") {
			path = append(path, argument.child("A_Const").child("sval").text("sval"))
		}
		if setting.text("name") != "search_path" {
			path = nil
		}
	}
	want := []string{"pg_catalog", "fence", "pg_temp"}
	if r.public && !slices.Equal(path, want) || !r.public && given {
		r.report("search_path", strings.Join(path, ", "))
	}
	known := []string{"language", "volatility", "security", "set", "as"}
	for _, option := range r.create.list("options") {
		if name := option.child("DefElem").text("defname"); !slices.Contains(known, name) {
			r.report("function options", name)
		}
	}
}

func lintParameters(r *routine) {
	in, _ := r.parameters()
	for i, parameter := range in {
		name, kind := parameter.text("name"), parameter.child("argType").words("names")
		if !strings.HasPrefix(name, "p_") {
			r.report("parameters begin with p_", name)
		}
		if name == "p_resource" && (i != 0 || !slices.Equal(kind, []string{"text"})) {
			r.report("p_resource text is the first parameter", strings.Join(kind, "."))
		}
	}
}

// lintStatements keeps to a flat block of assignments, IF, plain statements, RAISE and RETURN: no nested
// block, exception handler, loop, dynamic SQL, PERFORM, GET DIAGNOSTICS or cursor.
func lintStatements(r *routine) {
	allowed := []string{
		"PLpgSQL_stmt_assign", "PLpgSQL_stmt_execsql", "PLpgSQL_stmt_raise", "PLpgSQL_stmt_return",
		"PLpgSQL_stmt_return_next", "condition", "default", "RAISE parameter", "RAISE option",
	}
	for _, s := range r.body.steps {
		if !slices.Contains(allowed, s.kind) {
			r.report("flat block", strings.TrimPrefix(s.kind, "PLpgSQL_stmt_"))
		}
		if kind, _ := s.sql.only(); s.runsSQL() && !slices.Contains([]string{"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt"}, kind) {
			r.report("statement kinds", kind)
		}
	}
}

func lintVariables(r *routine) {
	in, out := r.parameters()
	for _, datum := range r.body.variables {
		kind, variable := datum.only()
		name, declared := variable.text("refname"), variable.child("datatype").child("PLpgSQL_type").text("typname")
		if kind == "PLpgSQL_rec" || strings.Contains(declared, "%") || strings.EqualFold(declared, "record") {
			r.report("typed scalars", name)
		}
		if kind == "PLpgSQL_var" && name != "found" && !strings.HasPrefix(name, "v_") && !hasParameter(in, name) && !hasParameter(out, name) {
			r.report("variables begin with v_", name)
		}
	}
}

// lintExpressions: nothing that is not portable, and no clock that stands still in a transaction.
func lintExpressions(r *routine) {
	for _, s := range r.body.steps {
		each(s.sql, func(kind string, node tree) {
			switch kind {
			case "ColumnRef":
				if fields := node.words("fields"); len(fields) == 1 && fields[0] == "found" {
					r.report("FOUND", "found")
				}
			case "NamedArgExpr":
				r.report("positional calls", node.text("name"))
			case "SQLValueFunction":
				r.report("wall clock", strings.ToLower(strings.TrimPrefix(node.text("op"), "SVFOP_")))
			case "TypeCast":
				if text := node.child("arg").child("A_Const").child("sval").text("sval"); slices.Contains([]string{"now", "today", "tomorrow", "yesterday"}, text) {
					r.report("wall clock", text)
				}
			case "SelectStmt":
				if node.text("op") != "SETOP_NONE" {
					r.report("statement kinds", node.text("op"))
				}
			case "FuncCall":
				lintCall(r, node.words("funcname"))
			}
		})
	}
}

func lintCall(r *routine, name []string) {
	last := name[len(name)-1]
	switch {
	case strings.Contains(last, "advisory"):
		r.report("advisory lock", last)
	case slices.Contains([]string{"now", "transaction_timestamp", "statement_timestamp", "timeofday"}, last):
		r.report("wall clock", last)
	case strings.HasPrefix(last, "dblink"), last == "pg_notify", last == "query_to_xml":
		r.report("functions", last)
	}
}

// lintClock: the clock is read by an assignment that reads no table. Inside a statement that waits for a lock
// it would be read before the wait.
func lintClock(r *routine) {
	for _, s := range r.body.steps {
		if !callsIn(s.sql)["clock_timestamp"] {
			continue
		}
		reads := false
		each(s.sql, func(kind string, _ tree) { reads = reads || kind == "RangeVar" })
		if s.kind != "PLpgSQL_stmt_assign" || reads {
			r.report("clock read into a variable", strings.TrimPrefix(s.kind, "PLpgSQL_stmt_"))
		}
	}
}

// queries calls visit for each query of the body.
func (r *routine) queries(visit func(q query, with map[string]bool)) {
	for _, s := range r.body.steps {
		queries, with := queriesIn(s.sql)
		for _, q := range queries {
			visit(q, with)
		}
	}
}

// lintTables: every table by its schema's name, so that no search path and no temporary table decides.
func lintTables(r *routine) {
	r.queries(func(q query, with map[string]bool) {
		for _, s := range q.tables {
			if s.schema != "fence" && !with[s.table] {
				r.report("tables by their full name", s.table)
			}
		}
	})
}

// lintResource: every query says resource = p_resource of each of its tables, so that each goes to one row,
// or to one shard.
func lintResource(r *routine) {
	r.queries(func(q query, _ map[string]bool) {
		tables := q.tables
		if q.kind == "InsertStmt" {
			tables = tables[1:] // its row names the resource: see lintInserts
		}
		for _, s := range tables {
			if r.keys[s.table] != nil && s.schema == "fence" && !q.demands(s.alias, "resource", "p_resource") {
				r.report("resource = p_resource", s.table)
			}
		}
		for _, set := range q.node.list("targetList") {
			if q.kind == "UpdateStmt" && set.child("ResTarget").text("name") == "resource" {
				r.report("resource = p_resource", "SET resource")
			}
		}
	})
}

// lintInserts: a new row is p_resource's, and "it exists" is judged by a key that leads with resource.
func lintInserts(r *routine) {
	r.queries(func(q query, _ map[string]bool) {
		if q.kind != "InsertStmt" || r.keys[q.tables[0].table] == nil {
			return
		}
		columns, rows := q.node.list("cols"), q.node.child("selectStmt").child("SelectStmt").list("valuesLists")
		good := len(columns) > 0 && columns[0].child("ResTarget").text("name") == "resource" && len(rows) == 1
		if good {
			first := rows[0].child("List").list("items")[0].child("ColumnRef").words("fields")
			good = slices.Equal(first, []string{"p_resource"})
		}
		if !good {
			r.report("resource = p_resource", q.tables[0].table)
		}
		if conflict := q.node.child("onConflictClause"); conflict != nil {
			elements := conflict.child("infer").list("indexElems")
			if len(elements) == 0 || elements[0].child("IndexElem").text("name") != "resource" {
				r.report("ON CONFLICT (resource …)", q.tables[0].table)
			}
			for _, set := range conflict.list("targetList") {
				if set.child("ResTarget").text("name") == "resource" {
					r.report("resource = p_resource", "SET resource")
				}
			}
		}
	})
}

// lintLocks: one locking SELECT for each row, by its whole key, never a join; FOR NO KEY UPDATE.
func lintLocks(r *routine) {
	r.queries(func(q query, _ map[string]bool) {
		for _, wrapped := range q.node.list("lockingClause") {
			clause := wrapped.child("LockingClause")
			var names []string
			for _, s := range q.tables {
				names = append(names, s.table)
			}
			subject := strings.Join(names, ", ")
			if len(q.tables) != 1 || len(q.node.list("fromClause")) != 1 {
				r.report("no locking join", subject)
				continue
			}
			if clause.text("strength") != "LCS_FORNOKEYUPDATE" {
				r.report("FOR NO KEY UPDATE", subject)
			}
			if clause.text("waitPolicy") != "LockWaitBlock" {
				r.report("no SKIP LOCKED or NOWAIT", subject)
			}
			if q.node.child("limitCount") != nil || q.node.list("sortClause") != nil || clause.list("lockedRels") != nil || !r.byKey(q) {
				r.report("locked by key", subject)
			}
		}
	})
}

// byKey tells whether a query on one table names one row: all columns of its primary key.
func (r *routine) byKey(q query) bool {
	key := r.keys[q.tables[0].table]
	for _, column := range key {
		if !q.demands(q.tables[0].alias, column, "p_"+column) {
			return false
		}
	}
	return key != nil
}

// lockRank is the order in which rows are locked everywhere, so that no two transactions wait for each other.
func lockRank() map[string]int {
	order := []string{
		"lease", "lease_term", "publication", "publication_key", "late_publication",
		"floor", "epoch", "intervention", "rejection",
	}
	rank := map[string]int{}
	for i, table := range order {
		rank[table] = i + 1
	}
	return rank
}

// lockedByCallee says which tables an internal routine locks; lintLockOrder checks it against its file.
func lockedByCallee() map[string][]string {
	return map[string][]string{
		"next_generation":  {"floor", "epoch"},
		"record_rejection": {"rejection"},
	}
}

// locksOf returns the tables that a step locks rows of, in the order of the text.
func (r *routine) locksOf(s step) []string {
	var tables []string
	queries, _ := queriesIn(s.sql)
	for _, q := range queries {
		if q.kind != "SelectStmt" || len(q.node.list("lockingClause")) > 0 {
			for _, s := range q.tables[:min(1, len(q.tables))] {
				tables = append(tables, s.table)
			}
		}
	}
	if statement := s.sql.child("LockStmt"); statement != nil {
		for _, s := range sourcesIn(statement.list("relations")) {
			tables = append(tables, s.table)
		}
	}
	calls := callsIn(s.sql)
	for _, callee := range slices.Sorted(maps.Keys(calls)) {
		tables = append(tables, lockedByCallee()[callee]...)
	}
	return tables
}

// lintLockOrder looks at where each table is locked first.
func lintLockOrder(r *routine) {
	rank, locked, highest := lockRank(), map[string]bool{}, ""
	for _, s := range r.body.steps {
		for _, table := range r.locksOf(s) {
			if locked[table] || rank[table] == 0 {
				continue
			}
			locked[table] = true
			if rank[table] < rank[highest] {
				r.report("lock order", table+" after "+highest)
			} else {
				highest = table
			}
		}
	}
	declared := lockedByCallee()[strings.TrimSuffix(path.Base(r.file), ".sql")]
	if !r.public && !slices.Equal(slices.Sorted(maps.Keys(locked)), slices.Sorted(slices.Values(declared))) {
		r.report("lock order", "lockedByCallee is out of date")
	}
}

// lintClockAfterLock: what an UPDATE or DELETE of a lease writes or decides by the clock was read after the
// last lock was waited for.
func lintClockAfterLock(r *routine) {
	stale := false
	for _, s := range r.body.steps {
		if s.readsClockInto("v_clock") {
			stale = false
		}
		queries, _ := queriesIn(s.sql)
		for _, q := range queries {
			switch q.kind {
			case "SelectStmt":
				stale = stale || len(q.node.list("lockingClause")) > 0 && r.keys[q.tables[0].table] != nil
			case "UpdateStmt", "DeleteStmt":
				lease := q.tables[0].table == "lease" || q.tables[0].table == "lease_term"
				if stale && lease && (q.kind == "DeleteStmt" || mentions(q.node, "v_clock")) {
					r.report("clock after the last lock", q.tables[0].table)
				}
			}
		}
	}
}

func mentions(node tree, variable string) bool {
	found := false
	each(node, func(kind string, node tree) {
		found = found || kind == "ColumnRef" && slices.Equal(node.words("fields"), []string{variable})
	})
	return found
}
