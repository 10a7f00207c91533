package client

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Selection is a read of one view, in the words that the engines have in common.
type Selection struct {
	// View of the schema fence.
	View string
	// Columns in the order of the fields that they go into.
	Columns []Column
	Where   []Condition
	// GroupBy names the columns that a row stands for, where Columns hold aggregates.
	GroupBy []string
	// OrderBy names columns; a minus before one means descending. A number is the place of a column.
	OrderBy []string
	// Limit is the most rows to read; 0 is all.
	Limit int64
}

// Column is a column of a view, or a value made of one.
type Column struct {
	function function
	name     string
}

type function int

const (
	itself function = iota
	bytesOf
	sumOf
	distinctOf
	minOf
	maxOf
)

// Columns of these names, as they are.
func Columns(names ...string) []Column {
	columns := make([]Column, len(names))
	for i, name := range names {
		columns[i] = Column{name: name}
	}
	return columns
}

// Bytes is the length of a text as the engine stores it.
func Bytes(column string) Column { return Column{bytesOf, column} }

// Sum adds up a column.
func Sum(column string) Column { return Column{sumOf, column} }

// Distinct counts the different values of a column.
func Distinct(column string) Column { return Column{distinctOf, column} }

// Min is the least value of a column.
func Min(column string) Column { return Column{minOf, column} }

// Max is the greatest value of a column.
func Max(column string) Column { return Column{maxOf, column} }

// Condition narrows a selection.
type Condition struct {
	column string
	kind   conditionKind
	values []any
}

type conditionKind int

const (
	equals conditionKind = iota
	glob
	within
	among
)

// Equals keeps the rows with this value.
func Equals(column string, value any) Condition { return Condition{column, equals, []any{value}} }

// Glob keeps the rows whose value fits the pattern: * stands for any characters, ? for one, \ before them for
// themselves.
func Glob(column, pattern string) Condition { return Condition{column, glob, []any{pattern}} }

// Within keeps the rows whose time is no older than this, by the database's clock.
func Within(column string, ms int64) Condition { return Condition{column, within, []any{ms}} }

// Among keeps the rows with one of these values.
func Among[T any](column string, values ...T) Condition {
	c := Condition{column: column, kind: among}
	for _, value := range values {
		c.values = append(c.values, value)
	}
	return c
}

// rows are what both drivers give out.
type rows interface {
	Next() bool
	Scan(places ...any) error
	Err() error
	Close() error
}

// Select reads rows into structs, whose exported fields, embedded ones in their place, are the columns.
func Select[T any](ctx context.Context, s Session, selection Selection) ([]T, error) {
	text, args := s.dialect().statement(selection)
	found, err := s.query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var all []T
	for found.Next() {
		var row T
		if err := found.Scan(places(s.dialect(), reflect.ValueOf(&row).Elem())...); err != nil {
			return nil, fmt.Errorf("read fence.%s: %w", selection.View, err)
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	return all, found.Close()
}

// places are where the columns of a row go.
func places(d dialect, row reflect.Value) []any {
	var all []any
	for i := range row.NumField() {
		field := row.Type().Field(i)
		switch {
		case field.Anonymous:
			all = append(all, places(d, row.Field(i))...)
		case field.IsExported():
			all = append(all, d.place(row.Field(i).Addr().Interface()))
		}
	}
	return all
}

// dialect is how an engine says these things.
type dialect interface {
	builder() *builder
	statement(Selection) (text string, args []any)
	condition(*builder, Condition) string
	// place is where the driver is to put a value that goes into the variable.
	place(variable any) any
}

// builder collects a statement and its arguments.
type builder struct {
	args      []any
	parameter func(number int) string
}

func (b *builder) add(value any) string {
	b.args = append(b.args, value)
	return b.parameter(len(b.args))
}

func (b *builder) list(values []any) string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i] = b.add(value)
	}
	return strings.Join(all, ", ")
}

func conditions(where []Condition, b *builder, say func(*builder, Condition) string) []string {
	said := make([]string, len(where))
	for i, c := range where {
		said[i] = say(b, c)
	}
	return said
}

func deletion(d dialect, table string, where []Condition) (text string, args []any) {
	b := d.builder()
	return "DELETE FROM fence." + table + " WHERE " + strings.Join(conditions(where, b, d.condition), " AND "), b.args
}

func orderBy(names []string) string {
	terms := make([]string, len(names))
	for i, name := range names {
		column, descending := strings.CutPrefix(name, "-")
		if terms[i] = column; descending {
			terms[i] += " DESC"
		}
	}
	return strings.Join(terms, ", ")
}

// tail is what both engines write alike.
func tail(s Selection, where []string) string {
	var text strings.Builder
	text.WriteString(" FROM fence." + s.View)
	if len(where) > 0 {
		text.WriteString(" WHERE " + strings.Join(where, " AND "))
	}
	if len(s.GroupBy) > 0 {
		text.WriteString(" GROUP BY " + strings.Join(s.GroupBy, ", "))
	}
	if len(s.OrderBy) > 0 {
		text.WriteString(" ORDER BY " + orderBy(s.OrderBy))
	}
	return text.String()
}

// like turns a glob into the pattern of LIKE, whose fixed beginning the database can look up in an index. special
// are the characters that mean something in a pattern of LIKE.
func like(glob, special string) string {
	var pattern strings.Builder
	literal := func(r rune) {
		if strings.ContainsRune(special, r) {
			pattern.WriteByte('\\')
		}
		pattern.WriteRune(r)
	}
	escaped := false
	for _, r := range glob {
		switch {
		case escaped:
			literal(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '*':
			pattern.WriteByte('%')
		case r == '?':
			pattern.WriteByte('_')
		default:
			literal(r)
		}
	}
	if escaped {
		literal('\\')
	}
	return pattern.String()
}

type postgresDialect struct{}

func (postgresDialect) builder() *builder {
	return &builder{parameter: func(number int) string { return fmt.Sprintf("$%d", number) }}
}

func (postgresDialect) place(variable any) any { return variable }

func (d postgresDialect) statement(s Selection) (string, []any) {
	b := d.builder()
	columns := make([]string, len(s.Columns))
	for i, column := range s.Columns {
		columns[i] = fmt.Sprintf([]string{
			itself: "%s", bytesOf: "octet_length(%s)::bigint", sumOf: "sum(%s)::bigint", distinctOf: "count(DISTINCT %s)", minOf: "min(%s)", maxOf: "max(%s)",
		}[column.function], column.name)
	}
	text := "SELECT " + strings.Join(columns, ", ") + tail(s, conditions(s.Where, b, d.condition))
	if s.Limit > 0 {
		text += " LIMIT " + b.add(s.Limit)
	}
	return text, b.args
}

func (postgresDialect) condition(b *builder, c Condition) string {
	switch c.kind {
	case glob:
		return c.column + " LIKE " + b.add(like(c.values[0].(string), `%_\`))
	case within:
		return c.column + " >= clock_timestamp() - " + b.add(c.values[0]) + "::bigint * interval '1 millisecond'"
	case among:
		return c.column + " IN (" + b.list(c.values) + ")"
	}
	return c.column + " = " + b.add(c.values[0])
}

type sqlServerDialect struct{}

func (sqlServerDialect) builder() *builder {
	return &builder{parameter: func(number int) string { return fmt.Sprintf("@p%d", number) }}
}

func (d sqlServerDialect) statement(s Selection) (string, []any) {
	b := d.builder()
	text := "SELECT "
	if s.Limit > 0 {
		text += "TOP (" + b.add(s.Limit) + ") "
	}
	columns := make([]string, len(s.Columns))
	for i, column := range s.Columns {
		columns[i] = fmt.Sprintf([]string{
			itself: "%s", bytesOf: "CAST(DATALENGTH(%s) AS bigint)", sumOf: "SUM(%s)", distinctOf: "COUNT_BIG(DISTINCT %s)", minOf: "MIN(%s)", maxOf: "MAX(%s)",
		}[column.function], column.name)
	}
	return text + strings.Join(columns, ", ") + tail(s, conditions(s.Where, b, d.condition)), b.args
}

func (sqlServerDialect) condition(b *builder, c Condition) string {
	switch c.kind {
	case glob:
		return c.column + " LIKE " + b.add(like(c.values[0].(string), `%_\[`)) + ` ESCAPE N'\'`
	case within:
		// In two steps: DATEADD takes an int, and 24.8 days are more milliseconds than that.
		ms := b.add(c.values[0])
		return c.column + " >= DATEADD(millisecond, -CAST(" + ms + " % 1000 AS int), DATEADD(second, -CAST(" + ms + " / 1000 AS int), SYSUTCDATETIME()))"
	case among:
		return c.column + " IN (" + b.list(c.values) + ")"
	}
	return c.column + " = " + b.add(c.values[0])
}

// place reads a datetime2, which knows no time zone, as the time in UTC that it is, and JSON from text.
func (sqlServerDialect) place(variable any) any {
	switch to := variable.(type) {
	case *time.Time:
		return utc{to}
	case **time.Time:
		return maybeUTC{to}
	case *json.RawMessage:
		return jsonText{to}
	}
	return variable
}

type utc struct{ to *time.Time }

func (u utc) Scan(value any) error {
	at, ok := value.(time.Time)
	if !ok {
		return fmt.Errorf("read a time: it is %T", value)
	}
	*u.to = time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
	return nil
}

type maybeUTC struct{ to **time.Time }

func (u maybeUTC) Scan(value any) error {
	*u.to = nil
	if value == nil {
		return nil
	}
	*u.to = new(time.Time)
	return utc{*u.to}.Scan(value)
}

type jsonText struct{ to *json.RawMessage }

func (j jsonText) Scan(value any) error {
	switch text := value.(type) {
	case nil:
		*j.to = nil
	case string:
		*j.to = json.RawMessage(text)
	case []byte:
		*j.to = append(json.RawMessage(nil), text...)
	default:
		return fmt.Errorf("read JSON: it is %T", value)
	}
	return nil
}
