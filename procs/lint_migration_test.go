package procs_test

import (
	"fmt"
	"slices"
	"strings"
)

// migration is one file of migrations/postgres.
type migration struct {
	file     string
	up, down []tree
	findings []finding
}

func (m *migration) report(rule, subject string) {
	m.findings = append(m.findings, finding{file: m.file, rule: rule, subject: subject})
}

func parseMigration(file, source string) (*migration, error) {
	up, down, found := strings.Cut(source, "-- +goose Down\n")
	if !found || !strings.Contains(up, "-- +goose Up\n") {
		return nil, fmt.Errorf("%s: no Up or no Down", file)
	}
	m := &migration{file: file}
	var err error
	if m.up, err = parseSQL(up); err != nil {
		return nil, fmt.Errorf("parse %s, Up: %w", file, err)
	}
	if m.down, err = parseSQL(down); err != nil {
		return nil, fmt.Errorf("parse %s, Down: %w", file, err)
	}
	return m, nil
}

// lintMigration checks tables, indexes and what a step down forgets.
func lintMigration(file, source string) ([]finding, error) {
	m, err := parseMigration(file, source)
	if err != nil {
		return nil, err
	}
	for _, statement := range m.up {
		switch kind, content := statement.only(); kind {
		case "CreateStmt":
			m.lintTable(content)
		case "IndexStmt":
			m.lintIndex(content)
		case "ViewStmt", "InsertStmt":
		case "CreateTrigStmt", "RuleStmt":
			m.report("no trigger", content.child("relation").text("relname"))
		default:
			m.report("statement kinds", kind)
		}
	}
	each(m.down, func(kind string, content tree) {
		if kind != "DropStmt" {
			return
		}
		if content.text("behavior") == "DROP_CASCADE" {
			m.report("no CASCADE", "drop")
		}
		for _, object := range content.list("objects") {
			name := object.child("List").words("items")
			if last := name[len(name)-1]; last == "floor" || last == "epoch" {
				m.report("floor and epoch stay", last)
			}
		}
	})
	return m.findings, nil
}

// table is what the rules about a table need.
type table struct {
	name       string
	columns    []tree
	primaryKey []string
	unique     [][]string // the primary key among them
}

func readTable(create tree) table {
	t := table{name: create.child("relation").text("relname")}
	add := func(constraint tree, column string) {
		keys := constraint.words("keys")
		if column != "" {
			keys = []string{column}
		}
		switch constraint.text("contype") {
		case "CONSTR_PRIMARY":
			t.primaryKey = keys
			t.unique = append(t.unique, keys)
		case "CONSTR_UNIQUE":
			t.unique = append(t.unique, keys)
		}
	}
	for _, element := range create.list("tableElts") {
		if column := element.child("ColumnDef"); column != nil {
			t.columns = append(t.columns, column)
			for _, constraint := range column.list("constraints") {
				add(constraint.child("Constraint"), column.text("colname"))
			}
		} else {
			add(element.child("Constraint"), "")
		}
	}
	return t
}

func (m *migration) lintTable(create tree) {
	t := readTable(create)
	if schema := create.child("relation").text("schemaname"); schema != "fence" {
		m.report("schema fence", t.name)
	}
	if create.child("relation").text("relpersistence") != "p" {
		m.report("no UNLOGGED", t.name)
	}
	// The two rows of numbering, and the ledger of routines: nothing in them belongs to a resource.
	byResource := !slices.Contains([]string{"floor", "epoch", "ledger"}, t.name)
	if byResource && (len(t.primaryKey) == 0 || t.columns[0].text("colname") != "resource") {
		m.report("resource leads every key", t.name)
	}
	for _, key := range t.unique {
		if byResource && key[0] != "resource" {
			m.report("resource leads every key", t.name+" ("+strings.Join(key, ", ")+")")
		}
	}
	for _, column := range t.columns {
		m.lintColumn(t, column)
	}
	each(create, func(kind string, content tree) {
		if kind == "Constraint" && content.text("contype") == "CONSTR_FOREIGN" {
			m.report("no foreign key", t.name)
		}
	})
}

// lintColumn: names are compared code point by code point, and times are instants.
func (m *migration) lintColumn(t table, column tree) {
	name, kind := column.text("colname"), column.child("typeName").words("names")
	names := []string{
		"resource", "owner", "operation_key", "operation", "reason", "performed_by", "previous_owner",
		"observed_owner", "routine",
	}
	if slices.Contains(names, name) {
		collation := column.child("collClause").words("collname")
		if !slices.Equal(kind, []string{"text"}) || !slices.Equal(collation, []string{"C"}) {
			m.report(`names are text COLLATE "C"`, t.name+"."+name)
		}
	}
	if kind[len(kind)-1] == "timestamp" {
		m.report("times are timestamptz", t.name+"."+name)
	}
}

func (m *migration) lintIndex(create tree) {
	name := create.child("relation").text("relname")
	if name == "lease" || name == "lease_term" {
		m.report("no second index on hot tables", name)
	}
	elements := create.list("indexParams")
	if create["unique"] == true && elements[0].child("IndexElem").text("name") != "resource" {
		m.report("resource leads every key", name)
	}
}
