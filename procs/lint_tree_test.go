package procs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	// The parser package alone: its parent takes its types from a module that compiles PostgreSQL's parser
	// with a C compiler where there is one, which would cost every first test run a minute.
	"github.com/wasilibs/go-pgquery/parser"
)

// tree is a node of a parse tree, as PostgreSQL's parser prints it.
type tree map[string]any

func (t tree) child(key string) tree {
	child, _ := t[key].(map[string]any)
	return child
}

// only returns the kind and the content of a node that is wrapped in its kind: {"SelectStmt": {…}}.
func (t tree) only() (kind string, content tree) {
	for kind := range t {
		return kind, t.child(kind)
	}
	return "", nil
}

func (t tree) list(key string) []tree {
	var list []tree
	elements, _ := t[key].([]any)
	for _, element := range elements {
		if node, ok := element.(map[string]any); ok {
			list = append(list, node)
		}
	}
	return list
}

func (t tree) text(key string) string {
	text, _ := t[key].(string)
	return text
}

func (t tree) number(key string) int {
	number, _ := t[key].(float64)
	return int(number)
}

// words returns a list of names, such as the parts of a qualified name.
func (t tree) words(key string) []string {
	var words []string
	for _, node := range t.list(key) {
		words = append(words, node.child("String").text("sval"))
	}
	return words
}

// each calls visit for every node below value, and for value itself when it is wrapped in its kind.
func each(value any, visit func(kind string, node tree)) {
	switch value := value.(type) {
	case tree:
		each(map[string]any(value), visit)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) { // the same order in each run
			inner := value[key]
			if node, ok := inner.(map[string]any); ok {
				visit(kindOf(key), node)
			}
			each(inner, visit)
		}
	case []tree:
		for _, inner := range value {
			each(inner, visit)
		}
	case []any:
		for _, inner := range value {
			each(inner, visit)
		}
	}
}

// kindOf names the kind of those nodes that the parser prints under their role instead.
func kindOf(key string) string {
	switch key {
	case "relation", "view":
		return "RangeVar"
	case "typeName", "argType", "returnType":
		return "TypeName"
	}
	return key
}

// parseSQL returns the statements of a script, each wrapped in its kind.
func parseSQL(source string) ([]tree, error) {
	printed, err := parser.ParseToJSON(source)
	if err != nil {
		return nil, err
	}
	var script tree
	if err := json.Unmarshal([]byte(printed), &script); err != nil {
		return nil, err
	}
	var statements []tree
	for _, statement := range script.list("stmts") {
		statements = append(statements, statement.child("stmt"))
	}
	return statements, nil
}

// step is one thing that a routine does, in the order of the text. A branch is flattened: its condition, then
// its arms one after the other.
type step struct {
	kind   string // PLpgSQL_stmt_assign, …_execsql, …; condition; default
	target string // the variable of an assignment
	sql    tree   // the parsed statement or expression, nil when there is none
}

func (s step) runsSQL() bool { return s.kind == "PLpgSQL_stmt_execsql" }

// assigns tells whether the step reads the clock into the variable.
func (s step) readsClockInto(variable string) bool {
	return s.kind == "PLpgSQL_stmt_assign" && s.target == variable && callsIn(s.sql)["clock_timestamp"]
}

// body is a parsed PL/pgSQL or SQL function body.
type body struct {
	steps     []step
	variables []tree // PLpgSQL_var and PLpgSQL_rec, wrapped
}

// parseBody reads the body of the one function that a file creates.
func parseBody(source, language string, create tree) (body, error) {
	if language == "sql" {
		return parseSQLBody(create)
	}
	printed, err := parser.ParsePlPgSqlToJSON(source)
	if err != nil {
		return body{}, err
	}
	var functions []tree
	if err := json.Unmarshal([]byte(printed), &functions); err != nil {
		return body{}, err
	}
	if len(functions) != 1 {
		return body{}, fmt.Errorf("%d functions", len(functions))
	}
	function := functions[0].child("PLpgSQL_function")
	reader := bodyReader{datums: function.list("datums")}
	for _, datum := range reader.datums {
		if kind, variable := datum.only(); kind == "PLpgSQL_var" && variable.child("default_val") != nil {
			if err := reader.add("default", variable.text("refname"), variable.child("default_val")); err != nil {
				return body{}, err
			}
		}
	}
	if err := reader.read(function.child("action").child("PLpgSQL_stmt_block").list("body")); err != nil {
		return body{}, err
	}
	return body{steps: reader.steps, variables: reader.datums}, nil
}

func parseSQLBody(create tree) (body, error) {
	var parsed body
	for _, option := range create.list("options") {
		if option.child("DefElem").text("defname") != "as" {
			continue
		}
		for _, text := range option.child("DefElem").child("arg").child("List").words("items") {
			statements, err := parseSQL(text)
			if err != nil {
				return body{}, err
			}
			for _, statement := range statements {
				parsed.steps = append(parsed.steps, step{kind: "PLpgSQL_stmt_execsql", sql: statement})
			}
		}
	}
	return parsed, nil
}

type bodyReader struct {
	datums []tree
	steps  []step
}

func (r *bodyReader) read(statements []tree) error {
	for _, statement := range statements {
		kind, content := statement.only()
		if err := r.readOne(kind, content); err != nil {
			return fmt.Errorf("line %d of the body: %w", content.number("lineno"), err)
		}
	}
	return nil
}

func (r *bodyReader) readOne(kind string, content tree) error {
	switch kind {
	case "PLpgSQL_stmt_assign":
		target := r.datums[content.number("varno")].child("PLpgSQL_var").text("refname")
		return r.add(kind, target, content.child("expr"))
	case "PLpgSQL_stmt_if":
		return r.readIf(content)
	case "PLpgSQL_stmt_execsql":
		return r.add(kind, "", content.child("sqlstmt"))
	case "PLpgSQL_stmt_return":
		return r.add(kind, "", content.child("expr"))
	case "PLpgSQL_stmt_raise":
		r.steps = append(r.steps, step{kind: kind})
		for _, parameter := range content.list("params") {
			if err := r.add("RAISE parameter", "", parameter); err != nil {
				return err
			}
		}
		for _, option := range content.list("options") {
			if err := r.add("RAISE option", "", option.child("PLpgSQL_raise_option").child("expr")); err != nil {
				return err
			}
		}
		return nil
	}
	// A rule says which other statements there may be; what stands in them is not looked at.
	r.steps = append(r.steps, step{kind: kind})
	return nil
}

func (r *bodyReader) readIf(content tree) error {
	if err := r.add("condition", "", content.child("cond")); err != nil {
		return err
	}
	if err := r.read(content.list("then_body")); err != nil {
		return err
	}
	for _, branch := range content.list("elsif_list") {
		if err := r.add("condition", "", branch.child("PLpgSQL_if_elsif").child("cond")); err != nil {
			return err
		}
		if err := r.read(branch.child("PLpgSQL_if_elsif").list("stmts")); err != nil {
			return err
		}
	}
	return r.read(content.list("else_body"))
}

// add parses an embedded statement or expression. PL/pgSQL hands an expression to the parser as the select
// list that it is, and an assignment with its target in front.
func (r *bodyReader) add(kind, target string, expression tree) error {
	if expression == nil {
		r.steps = append(r.steps, step{kind: kind, target: target})
		return nil
	}
	const wholeStatement, bare = 0, 2
	inner := expression.child("PLpgSQL_expr")
	source := inner.text("query")
	switch mode := inner.number("parseMode"); {
	case mode == bare:
		source = "SELECT " + source
	case mode > bare:
		source = "SELECT " + regexp.MustCompile(`^[^=:]*:?=`).ReplaceAllString(source, "")
	}
	statements, err := parseSQL(source)
	if err != nil {
		return fmt.Errorf("parse %q: %w", source, err)
	}
	if len(statements) != 1 {
		return fmt.Errorf("parse %q: %d statements", source, len(statements))
	}
	r.steps = append(r.steps, step{kind: kind, target: target, sql: statements[0]})
	return nil
}

// callsIn returns the functions that are called below a node, without their schema.
func callsIn(node tree) map[string]bool {
	calls := map[string]bool{}
	each(node, func(kind string, node tree) {
		if kind == "FuncCall" {
			name := node.words("funcname")
			calls[name[len(name)-1]] = true
		}
	})
	return calls
}

// query is one SELECT, INSERT, UPDATE or DELETE, without those that it contains.
type query struct {
	kind   string
	node   tree
	tables []source
}

// source is a table in a query's FROM or as its target.
type source struct {
	schema, table, alias string
}

// queriesIn returns the queries of a statement, the inner ones too, and the names that its WITH defines.
func queriesIn(statement tree) (queries []query, with map[string]bool) {
	with = map[string]bool{}
	each(statement, func(kind string, node tree) {
		switch kind {
		case "SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt":
			q := query{kind: kind, node: node}
			if target := node.child("relation"); target != nil {
				q.tables = append(q.tables, sourceOf(target))
			}
			q.tables = append(q.tables, sourcesIn(node.list("fromClause"))...)
			q.tables = append(q.tables, sourcesIn(node.list("usingClause"))...)
			queries = append(queries, q)
		case "CommonTableExpr":
			with[node.text("ctename")] = true
		}
	})
	return queries, with
}

func sourceOf(relation tree) source {
	s := source{schema: relation.text("schemaname"), table: relation.text("relname")}
	s.alias = s.table
	if alias := relation.child("alias").text("aliasname"); alias != "" {
		s.alias = alias
	}
	return s
}

func sourcesIn(from []tree) []source {
	var sources []source
	for _, item := range from {
		switch kind, content := item.only(); kind {
		case "RangeVar":
			sources = append(sources, sourceOf(content))
		case "JoinExpr":
			sources = append(sources, sourcesIn([]tree{content.child("larg"), content.child("rarg")})...)
		}
	}
	return sources
}

// demands tells whether every row that the query returns or changes has alias.column = p_column: the
// condition stands in WHERE, or in one of the parts that AND joins there.
func (q query) demands(alias, column, parameter string) bool {
	return conjunct(q.node.child("whereClause"), func(condition tree) bool {
		compare := condition.child("A_Expr")
		if compare.text("kind") != "AEXPR_OP" || strings.Join(compare.words("name"), ".") != "=" {
			return false
		}
		left := strings.Join(compare.child("lexpr").child("ColumnRef").words("fields"), ".")
		right := strings.Join(compare.child("rexpr").child("ColumnRef").words("fields"), ".")
		return left == alias+"."+column && right == parameter
	})
}

func conjunct(condition tree, holds func(tree) bool) bool {
	if and := condition.child("BoolExpr"); and.text("boolop") == "AND_EXPR" {
		for _, part := range and.list("args") {
			if conjunct(part, holds) {
				return true
			}
		}
		return false
	}
	return holds(condition)
}
