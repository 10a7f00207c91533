package procs_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	tsql "github.com/sqlc-dev/teesql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/migrations"
	"github.com/fencectl/fencectl/procs"
)

// parseTSQL returns the statements of a script. Each node tells its kind under "$type".
func parseTSQL(t *testing.T, source string) ([]tree, error) {
	t.Helper()
	// The parser does not know a collation after a variable in a condition. It has no part in any rule here.
	source = regexp.MustCompile(`(@\w+) COLLATE Latin1_General_100_BIN2\b`).ReplaceAllString(source, "$1")
	script, err := tsql.Parse(t.Context(), strings.NewReader(source))
	if err != nil {
		return nil, err
	}
	printed, err := tsql.MarshalScript(script)
	if err != nil {
		return nil, err
	}
	var parsed tree
	if err := json.Unmarshal(printed, &parsed); err != nil {
		return nil, err
	}
	var statements []tree
	for _, batch := range parsed.list("Batches") {
		statements = append(statements, batch.list("Statements")...)
	}
	return statements, nil
}

func (t tree) kind() string { return t.text("$type") }

// within calls visit for the node and every one below it.
func (t tree) within(visit func(tree)) {
	visit(t)
	for _, inner := range t {
		switch inner := inner.(type) {
		case map[string]any:
			tree(inner).within(visit)
		case []any:
			for _, one := range inner {
				if node, ok := one.(map[string]any); ok {
					tree(node).within(visit)
				}
			}
		}
	}
}

// object is the name of a table or routine: its schema, if it says one, and its own.
func (t tree) object() (schema, name string) {
	return t.child("SchemaIdentifier").text("Value"), t.child("BaseIdentifier").text("Value")
}

// declared is a data type as it is written: nvarchar(256).
func (t tree) declared() string {
	_, name := t.child("Name").object()
	var sizes []string
	for _, size := range t.list("Parameters") {
		sizes = append(sizes, strings.ToLower(size.text("Value")))
	}
	if len(sizes) > 0 {
		name += "(" + strings.Join(sizes, ",") + ")"
	}
	return strings.ToLower(name)
}

// lintTSQL holds one routine to the rules. Columns are the types of the columns of the tables by their name.
func lintTSQL(t *testing.T, routine procs.Routine, source string, columns map[string]string) []finding {
	t.Helper()
	var found []finding
	report := func(rule, subject string) { found = append(found, finding{routine.File, rule, subject}) }
	if regexp.MustCompile(`(?mi)^\s*GO\s*$`).MatchString(source) {
		report("one batch", "GO")
		return found
	}
	statements, err := parseTSQL(t, source)
	if err != nil {
		report("parses", err.Error())
		return found
	}
	if len(statements) != 1 {
		report("one statement a file", fmt.Sprint(len(statements)))
		return found
	}
	create := statements[0]
	for _, check := range []func(procs.Routine, tree, func(rule, subject string)){
		lintTSQLCreated, lintTSQLSettings, lintTSQLForbidden, lintTSQLClock, lintTSQLHints, lintTSQLResult,
	} {
		check(routine, create, report)
	}
	if !routine.Internal {
		lintTSQLParameters(create, columns, report)
	}
	return found
}

func isProcedure(create tree) bool { return create.kind() == "CreateProcedureStatement" }

func lintTSQLCreated(routine procs.Routine, create tree, report func(rule, subject string)) {
	reference := create.child("ProcedureReference").child("Name")
	switch create.kind() {
	case "CreateProcedureStatement":
	case "CreateFunctionStatement":
		reference = create.child("Name")
	default:
		report("CREATE, and nothing else", create.kind())
		return
	}
	if schema, name := reference.object(); schema != "fence" || name != routine.Name {
		report("the routine of its file", schema+"."+name)
	}
}

// body is what a procedure does, in its order.
func tsqlBody(create tree) []tree { return create.child("StatementList").list("Statements") }

func lintTSQLSettings(routine procs.Routine, create tree, report func(rule, subject string)) {
	if !isProcedure(create) {
		return
	}
	want := []string{"NoCount true", "XactAbort true"}
	if slices.Contains([]string{"acquire", "renew", "release"}, routine.Name) {
		want = append(want, "ImplicitTransactions false") // their effect must not wait for a forgotten commit
	}
	var got []string
	for _, statement := range tsqlBody(create) {
		if statement.kind() != "PredicateSetStatement" {
			break
		}
		got = append(got, fmt.Sprint(statement.text("Options"), " ", statement["IsOn"]))
	}
	if !slices.Equal(want, got) {
		report("settings first", strings.Join(got, ", "))
	}
}

// lintTSQLForbidden knows what one of the servers refuses, or means differently.
func lintTSQLForbidden(_ procs.Routine, create tree, report func(rule, subject string)) {
	functions := []string{"JSON_OBJECT", "GENERATE_SERIES", "DATALENGTH", "GETDATE", "GETUTCDATE", "SYSDATETIME", "CURRENT_TIMESTAMP"}
	create.within(func(node tree) {
		switch node.kind() {
		case "MergeStatement", "WaitForStatement", "ExecuteAsStatement", "OutputClause", "OutputIntoClause", "DistinctPredicate",
			"CreateOrAlterProcedureStatement", "ExecutableStringList", "GlobalFunctionTableReference":
			report("nothing that is refused or dynamic", node.kind())
		case "AssignmentSetClause":
			if kind := node.text("AssignmentKind"); kind != "Equals" {
				report("nothing that is refused or dynamic", kind)
			}
			if node.child("Variable") != nil {
				report("nothing that is refused or dynamic", "SET @v = in UPDATE")
			}
		case "ExecutableProcedureReference":
			schema, name := node.child("ProcedureReference").child("ProcedureReference").child("Name").object()
			if schema != "fence" {
				report("nothing that is refused or dynamic", "EXEC "+name)
			}
		case "FunctionCall":
			if name := strings.ToUpper(node.child("FunctionName").text("Value")); slices.Contains(functions, name) {
				report("nothing that is refused or dynamic", name)
			}
		case "NamedTableReference":
			if schema, name := node.child("SchemaObject").object(); schema != "fence" {
				report("tables of the schema fence", schema+"."+name)
			}
		}
	})
}

// lintTSQLClock: a clock in a statement that reads or writes rows is judged before its lock wait.
func lintTSQLClock(_ procs.Routine, create tree, report func(rule, subject string)) {
	create.within(func(node tree) {
		switch node.kind() {
		case "UpdateSpecification", "DeleteSpecification", "InsertSpecification":
		case "QuerySpecification":
			if node.child("FromClause") == nil {
				return
			}
		default:
			return
		}
		node.within(func(inner tree) {
			if inner.kind() == "FunctionCall" && strings.EqualFold(inner.child("FunctionName").text("Value"), "SYSUTCDATETIME") {
				report("no clock beside rows", node.kind())
			}
		})
	})
}

func hintsOf(table tree) (hints []string) {
	for _, hint := range table.list("TableHints") {
		hints = append(hints, hint.text("HintKind"))
	}
	return hints
}

// lintTSQLHints: every read takes what is committed, whatever the database and the session say, and what only locks
// a row locks that row alone.
func lintTSQLHints(_ procs.Routine, create tree, report func(rule, subject string)) {
	create.within(func(node tree) {
		switch node.kind() {
		case "FromClause":
			node.within(func(table tree) {
				if table.kind() == "NamedTableReference" && !slices.Contains(hintsOf(table), "ReadCommittedLock") {
					_, name := table.child("SchemaObject").object()
					report("READCOMMITTEDLOCK on every read", name)
				}
			})
		case "UpdateSpecification":
			if !changesNothing(node) {
				return
			}
			target := node.child("Target")
			_, name := target.child("SchemaObject").object()
			if got := hintsOf(target); !slices.Equal([]string{"ReadCommittedLock", "Rowlock", "XLock"}, got) {
				report("READCOMMITTEDLOCK, ROWLOCK, XLOCK where a row is locked", name)
			}
		}
	})
}

// changesNothing tells whether an UPDATE is there for its lock: it sets a column to itself.
func changesNothing(update tree) bool {
	column := func(of tree) string {
		var name string
		of.within(func(node tree) {
			if node.kind() == "Identifier" {
				name = node.text("Value")
			}
		})
		return name
	}
	for _, clause := range update.list("SetClauses") {
		value := clause.child("NewValue")
		if value.kind() != "ColumnReferenceExpression" || column(value) != column(clause.child("Column")) {
			return false
		}
	}
	return true
}

// lintTSQLResult: one SELECT that answers, at the end, of a public procedure; check and require leave it to the
// procedure that they share.
func lintTSQLResult(routine procs.Routine, create tree, report func(rule, subject string)) {
	if !isProcedure(create) {
		return
	}
	answers := 0
	create.within(func(node tree) {
		if answersRows(node) {
			answers++
		}
	})
	want := 1
	switch {
	case routine.Internal && routine.Name != "check_token", routine.Name == "check", routine.Name == "require":
		want = 0
	}
	body := tsqlBody(create)
	if answers != want || want == 1 && !answersRows(body[len(body)-1]) {
		report("one result, at the end", fmt.Sprint(answers))
	}
}

// answersRows tells whether a statement sends rows to the client: a SELECT that fills variables does not.
func answersRows(statement tree) bool {
	elements := statement.child("QueryExpression").list("SelectElements")
	return statement.kind() == "SelectStatement" &&
		slices.ContainsFunc(elements, func(e tree) bool { return e.kind() != "SelectSetVariable" })
}

// lintTSQLParameters: a parameter has the type of its column, but for text of a bounded length, which is one unit
// longer: T-SQL cuts what is longer without a word, and what has been cut must still be too long.
func lintTSQLParameters(create tree, columns map[string]string, report func(rule, subject string)) {
	for _, parameter := range create.list("Parameters") {
		name := strings.TrimPrefix(parameter.child("VariableName").text("Value"), "@")
		column := name
		if name == "by" {
			column = "performed_by"
		}
		want, known := columns[column]
		if !known {
			continue
		}
		var length int
		if _, err := fmt.Sscanf(want, "nvarchar(%d)", &length); err == nil {
			want = fmt.Sprintf("nvarchar(%d)", length+1)
		}
		if got := parameter.child("DataType").declared(); got != want {
			report("the type of the column", name+" "+got)
		}
	}
}

// tsqlColumns returns the types of all columns; those of one name have one type.
func tsqlColumns(t *testing.T) map[string]string {
	t.Helper()
	columns := map[string]string{}
	for file, source := range tsqlFiles(t, migrations.MSSQL) {
		statements, err := parseTSQL(t, source)
		require.NoError(t, err, file)
		for _, statement := range statements {
			statement.within(func(node tree) {
				if node.kind() == "ColumnDefinition" {
					columns[node.child("ColumnIdentifier").text("Value")] = node.child("DataType").declared()
				}
			})
		}
	}
	return columns
}

func tsqlFiles(t *testing.T, files fs.FS) map[string]string {
	t.Helper()
	names, err := fs.Glob(files, "mssql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	sources := map[string]string{}
	for _, name := range names {
		source, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		sources[name] = string(source)
	}
	return sources
}

// tsqlExceptions are findings that stand.
func tsqlExceptions() map[finding]string {
	at := func(name, rule, subject string) finding { return finding{"mssql/" + name + ".sql", rule, subject} }
	const reads, locks = "READCOMMITTEDLOCK on every read", "READCOMMITTEDLOCK, ROWLOCK, XLOCK where a row is locked"
	return map[finding]string{
		at("acquire", reads, "floor"):     "held shared until the number is committed",
		at("seize", reads, "floor"):       "held shared until the number is committed",
		at("raise_floor", locks, "floor"): "waits for every grant under way: a table of one row",
	}
}

func TestEveryTSQLRoutineKeepsTheRules(t *testing.T) {
	t.Parallel()
	columns := tsqlColumns(t)
	require.Equal(t, "nvarchar(255)", columns["resource"])
	sources := tsqlFiles(t, os.DirFS("."))
	assert.Len(t, sources, len(procs.MSSQL()), "every file is a routine")
	excepted := map[finding]bool{}
	for _, routine := range procs.MSSQL() {
		require.Contains(t, sources, routine.File)
		for _, f := range lintTSQL(t, routine, routine.Source(), columns) {
			if _, ok := tsqlExceptions()[f]; ok {
				excepted[f] = true
				continue
			}
			t.Error(f)
		}
	}
	for f, why := range tsqlExceptions() {
		assert.True(t, excepted[f], "the exception is not needed: %s (%s)", f, why)
	}
}

// Routines of one name are public on both engines, or on none.
func TestTheEnginesHaveTheSamePublicRoutines(t *testing.T) {
	t.Parallel()
	public := func(all []procs.Routine) (names []string) {
		for _, routine := range all {
			if !routine.Internal {
				names = append(names, routine.Name)
			}
		}
		return names
	}
	assert.Equal(t, public(procs.Postgres(true)), public(procs.MSSQL()))
}

const goodTSQL = `-- Touches a lease.
CREATE PROCEDURE fence.renew
    @resource nvarchar(256),
    @generation bigint
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;

DECLARE @clock datetime2(7);
DECLARE @found bigint;

EXEC fence.assert_name @resource, N'resource';
UPDATE fence.lease WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
   SET generation = generation
 WHERE resource = @resource;
SELECT @found = l.generation
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
 WHERE l.resource = @resource;
SET @clock = SYSUTCDATETIME();
UPDATE fence.lease_term
   SET renewed_at = @clock
 WHERE resource = @resource;

SELECT N'touched' AS outcome, @found AS generation;
`

func TestTheTSQLRulesRefuseWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	columns := tsqlColumns(t)
	touch := procs.Routine{Name: "renew", File: "mssql/renew.sql"}
	require.Empty(t, lintTSQL(t, touch, goodTSQL, columns))
	for _, c := range []struct{ rule, old, new string }{
		{"parses", "SELECT @found = l.generation", "SELECT @found = = l.generation"},
		{"one batch", "\nSELECT N'touched'", "\nGO\nSELECT N'touched'"},
		{"CREATE, and nothing else", "CREATE PROCEDURE", "ALTER PROCEDURE"},
		{"CREATE, and nothing else", "CREATE PROCEDURE", "CREATE OR ALTER PROCEDURE"},
		{"the routine of its file", "fence.renew", "fence.touch"},
		{"the routine of its file", "fence.renew", "renew"},
		{"settings first", "SET NOCOUNT ON;\n", ""},
		{"settings first", "SET XACT_ABORT ON", "SET XACT_ABORT OFF"},
		{"settings first", "SET IMPLICIT_TRANSACTIONS OFF;\n", ""},
		{"nothing that is refused or dynamic", "EXEC fence.assert_name @resource, N'resource'", "EXEC sp_executesql N'SELECT 1'"},
		{"nothing that is refused or dynamic", "EXEC fence.assert_name @resource, N'resource'", "EXEC (@resource)"},
		{"nothing that is refused or dynamic", "EXEC fence.assert_name @resource, N'resource'",
			"MERGE INTO fence.lease USING fence.floor ON at_least = generation WHEN MATCHED THEN DELETE"},
		{"nothing that is refused or dynamic", "EXEC fence.assert_name @resource, N'resource'", "WAITFOR DELAY '00:00:01'"},
		{"nothing that is refused or dynamic", "renewed_at = @clock", "renewals += 1"},
		{"nothing that is refused or dynamic", "@found AS generation", "DATALENGTH(@resource) AS generation"},
		{"nothing that is refused or dynamic", "SET @clock = SYSUTCDATETIME()", "SET @clock = GETDATE()"},
		{"tables of the schema fence", "FROM fence.lease l", "FROM lease l"},
		{"no clock beside rows", "renewed_at = @clock", "renewed_at = SYSUTCDATETIME()"},
		{"no clock beside rows", " WHERE l.resource = @resource", " WHERE l.acquired_at < SYSUTCDATETIME()"},
		{"READCOMMITTEDLOCK on every read", "fence.lease l WITH (READCOMMITTEDLOCK)", "fence.lease l"},
		{"READCOMMITTEDLOCK, ROWLOCK, XLOCK where a row is locked", ", ROWLOCK, XLOCK", ", ROWLOCK"},
		{"READCOMMITTEDLOCK, ROWLOCK, XLOCK where a row is locked", " WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)", ""},
		{"one result, at the end", "SELECT N'touched' AS outcome, @found AS generation;\n", ""},
		{"one result, at the end", "SET @clock = SYSUTCDATETIME();", "SELECT 1 AS outcome;"},
		{"the type of the column", "@resource nvarchar(256)", "@resource nvarchar(255)"},
		{"the type of the column", "@generation bigint", "@generation int"},
	} {
		require.Equal(t, 1, strings.Count(goodTSQL, c.old), c.old)
		var rules []string
		for _, f := range lintTSQL(t, touch, strings.Replace(goodTSQL, c.old, c.new, 1), columns) {
			rules = append(rules, f.rule)
		}
		assert.Contains(t, rules, c.rule, "%s → %s", c.old, c.new)
	}
}
