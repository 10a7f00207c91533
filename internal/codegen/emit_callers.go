package codegen

import (
	"fmt"
	"slices"
	"strings"
)

var callerImports = map[string]string{
	"context.": "context", "time.": "time", "strconv.": "strconv", "sql.": "database/sql", "json.": "encoding/json",
	"civil.": "github.com/golang-sql/civil", "mssql.": "mssql github.com/microsoft/go-mssqldb", "pgx.": "github.com/jackc/pgx/v5",
}

// callers writes a method for each routine.
func (e *emitter) callers() string {
	var b strings.Builder
	for _, c := range e.routines {
		e.writeCaller(&b, c)
	}
	known := map[string]string{}
	for use, importPath := range callerImports {
		known[use] = importPath
	}
	if e.TypesImport != "" {
		known[e.qualified("")] = e.TypesImport
	}
	return "package " + e.Package + "\n\n" + imports(b.String(), known) + b.String()
}

func (e *emitter) writeCaller(b *strings.Builder, c *call) {
	paragraphs := []string{fmt.Sprintf("%s calls %s.%s.", c.goName, c.Schema, c.Name)}
	if c.Doc != "" {
		paragraphs = append(paragraphs, c.Doc)
	}
	b.WriteString(comment("", paragraphs...))
	receiver := "d *DB"
	if c.inTransaction {
		receiver = "d Tx"
	}
	fmt.Fprintf(b, "func (%s) %s {\n", receiver, e.signature(c))
	if e.Fence {
		b.WriteString("\tstart := time.Now()\n")
	}
	if e.Engine == Postgres {
		e.writePostgresCall(b, c)
	} else {
		e.writeMSSQLCall(b, c)
	}
	routine := fmt.Sprintf("%q", c.Schema+"."+c.Name)
	places := e.places(c)
	db := "d"
	if c.inTransaction {
		db = "d.DB"
	}
	switch {
	case len(c.columns) == 0:
		fmt.Fprintf(b, "\terr = %s.none(ctx, %s, text, args)\n", db, routine)
	case c.Result.Cardinality == Rows:
		fmt.Fprintf(b, `	err = %s.rows(ctx, %s, text, args, func(scan func(...any) error) error {
		var r %s
		if err := scan(%s); err != nil {
			return err
		}
		all = append(all, r)
		return nil
	})
`, db, routine, e.qualified(c.goName+"Result"), places)
	default:
		fmt.Fprintf(b, "\terr = %s.one(ctx, %s, text, args, %s)\n", db, routine, places)
	}
	e.writeReturn(b, c, routine, db)
}

// writeReturn hands the answer back; the fence's callers show it to the observer first.
func (e *emitter) writeReturn(b *strings.Builder, c *call, routine, db string) {
	answer := "r, "
	if len(c.columns) == 0 {
		answer = ""
	} else if c.Result.Cardinality == Rows {
		answer = "all, "
	}
	if !e.Fence {
		fmt.Fprintf(b, "\treturn %serr\n}\n\n", answer)
		return
	}
	outcome, reason := `""`, "nil"
	if c.Result.Cardinality != Rows {
		for _, f := range c.columns {
			switch {
			case f.base == "Outcome":
				outcome = "r." + f.goName
			case f.base == "Reason" && f.pointer:
				reason = "r." + f.goName
			case f.base == "Reason":
				reason = "&r." + f.goName
			}
		}
	}
	fmt.Fprintf(b, "\treturn %s%s.seen(ctx, %s, start, %s, %s, err)\n}\n\n", answer, db, routine, outcome, reason)
}

// writePostgresCall writes text and args. Parameters stand in their places up to the first that may be left out,
// and are named from there on.
func (e *emitter) writePostgresCall(b *strings.Builder, c *call) {
	named := slices.IndexFunc(c.params, func(f field) bool { return f.optional })
	if named < 0 {
		named = len(c.params)
	}
	var placed, values []string
	for i, f := range c.params[:named] {
		placed = append(placed, nulls(len(c.outBefore[i]))...)
		placed = append(placed, postgresParam(fmt.Sprintf("$%d", i+1), f))
		values = append(values, postgresValue(f))
	}
	placed = append(placed, nulls(len(c.outBefore[named]))...)
	head, tail := postgresAround(c)
	if named < len(c.params) {
		for _, out := range slices.Concat(c.outBefore[named+1:]...) {
			tail = ", " + quotedName(out) + " => NULL" + tail
		}
	}
	if head += strings.Join(placed, ", "); named == len(c.params) {
		head, tail = head+tail, "" // one constant
	}
	fmt.Fprintf(b, "\ttext := %q\n", head)
	if len(c.params) == 0 {
		b.WriteString("\tvar args []any\n")
		return
	}
	fmt.Fprintf(b, "\targs := append(make([]any, 0, %d)", len(c.params))
	for _, value := range values {
		b.WriteString(", " + value)
	}
	b.WriteString(")\n")
	for i, f := range c.params[named:] {
		before, after, _ := strings.Cut(postgresParam("$\x00", f), "\x00")
		before = quotedName(f.name) + " => " + before
		comma := ""
		switch {
		case named > 0:
			before = ", " + before
		case i > 0: // it may be the first that is sent
			comma = "comma(len(args)) + "
		}
		add := fmt.Sprintf("\targs = append(args, %s)\n\ttext += %s%q + strconv.Itoa(len(args))", postgresValue(f), comma, before)
		if after != "" {
			add += fmt.Sprintf(" + %q", after)
		}
		if f.optional {
			fmt.Fprintf(b, "\tif %s {\n%s\n\t}\n", isSet(f), add)
		} else {
			b.WriteString(add + "\n")
		}
	}
	if tail == "" {
		return
	}
	if rest, cut := strings.CutPrefix(tail, ", "); cut && named == 0 {
		fmt.Fprintf(b, "\ttext += comma(len(args)+1) + %q\n", rest)
		return
	}
	fmt.Fprintf(b, "\ttext += %q\n", tail)
}

// nulls stand in the places of OUT parameters.
func nulls(n int) []string { return slices.Repeat([]string{"NULL"}, n) }

// postgresAround is the statement up to the arguments, and after them.
func postgresAround(c *call) (head, tail string) {
	name := quotedName(c.Schema) + "." + quotedName(c.Name) + "("
	if c.Kind == Procedure {
		return "CALL " + name, ")"
	}
	columns := make([]string, len(c.columns))
	for i, f := range c.columns {
		columns[i] = quotedName(f.name)
		if f.sql.Base == Array && f.sql.Elem != nil && asText(*f.sql.Elem) {
			columns[i] += "::text[]"
		} else if asText(f.sql) {
			columns[i] += "::text"
		}
	}
	if len(columns) == 0 {
		return "SELECT " + name, ")"
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + name, ")"
}

// postgresParam casts what travels as text to what it is.
func postgresParam(place string, f field) string {
	if asText(f.sql) {
		return place + "::text::" + f.sql.SQL
	}
	return place
}

// quotedName quotes what PostgreSQL would not read as it stands. Reserved words are quoted by their use: after a
// schema, as a column or as a parameter's name none of the contract's is one.
func quotedName(name string) string {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		}
	}
	if reserved[name] || name == "" {
		return `"` + name + `"`
	}
	return name
}

// reserved are PostgreSQL's reserved words.
var reserved = func() map[string]bool {
	words := map[string]bool{}
	for _, word := range strings.Fields(`all analyse analyze and any array as asc asymmetric authorization binary both case cast
		check collate collation column concurrently constraint create cross current_catalog current_date current_role current_schema
		current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign
		freeze from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
		localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
		returning right select session_user similar some symmetric table tablesample then to trailing true union unique user
		using variadic verbose when where window with`) {
		words[word] = true
	}
	return words
}()

// isSet is the condition that an optional parameter is given.
func isSet(f field) string {
	if f.wordy && !f.pointer {
		return fmt.Sprintf("p.%s != \"\"", f.goName)
	}
	return fmt.Sprintf("p.%s != nil", f.goName)
}

func postgresValue(f field) string {
	value := "p." + f.goName
	switch {
	case f.wordy && f.pointer && f.optional:
		return "string(*" + value + ")"
	case f.wordy && f.pointer:
		return "(*string)(" + value + ")"
	case f.wordy:
		return "string(" + value + ")"
	case f.pointer && f.optional:
		return "*" + value
	}
	return value
}

// writeMSSQLCall writes text and args: parameters by name, those left out that are not set.
func (e *emitter) writeMSSQLCall(b *strings.Builder, c *call) {
	fmt.Fprintf(b, "\ttext := %q\n", "["+strings.ReplaceAll(c.Schema, "]", "]]")+"].["+strings.ReplaceAll(c.Name, "]", "]]")+"]")
	if len(c.params) == 0 {
		b.WriteString("\tvar args []any\n")
		return
	}
	fmt.Fprintf(b, "\targs := make([]any, 0, %d)\n", len(c.params))
	for _, f := range c.params {
		value := "p." + f.goName
		if f.pointer {
			value = "*" + value
		}
		add := fmt.Sprintf("\targs = append(args, sql.Named(%q, %s))\n", f.name, mssqlValue(f, value))
		switch {
		case f.optional:
			fmt.Fprintf(b, "\tif %s {\n\t%s\t}\n", isSet(f), add)
		case f.pointer || f.nullable:
			fmt.Fprintf(b, "\tif %s {\n\t%s\t} else {\n\t\targs = append(args, sql.Named(%q, %s))\n\t}\n", isSet(f), add, f.name, mssqlNull(f))
		default:
			b.WriteString(add)
		}
	}
}

// mssqlValue has the declared type: an implicit conversion on the server could not use an index, and a time that
// is not said to be UTC would be taken for local time.
func mssqlValue(f field, value string) string {
	name := strings.ToLower(f.sql.SQL)
	switch f.sql.Base {
	case Text, XML, JSON:
		kind := "string"
		switch {
		case strings.HasPrefix(name, "nvarchar") && f.sql.Length == -1, f.sql.Base != Text, strings.HasPrefix(name, "ntext"):
			kind = "mssql.NVarCharMax"
		case strings.HasPrefix(name, "varchar") && f.sql.Length == -1, name == "text":
			kind = "mssql.VarCharMax"
		case strings.HasPrefix(name, "varchar"), strings.HasPrefix(name, "char"):
			kind = "mssql.VarChar"
		case strings.HasPrefix(name, "nchar"):
			kind = "mssql.NChar"
		}
		if kind == "string" && !f.wordy {
			return value
		}
		return kind + "(" + value + ")"
	case UUID:
		return "mssql.UniqueIdentifier(" + value + ")"
	case Instant:
		if strings.HasPrefix(name, "datetimeoffset") {
			return "mssql.DateTimeOffset(" + value + ")"
		}
		return "civil.DateTimeOf(" + parenthesized(value) + ".UTC())"
	}
	return value
}

func parenthesized(value string) string {
	if strings.HasPrefix(value, "*") {
		return "(" + value + ")"
	}
	return value
}

// mssqlNull is a NULL of the parameter's type. That of a uniqueidentifier is a text's: Babelfish misreads the one that
// the driver has for it.
func mssqlNull(f field) string {
	switch f.sql.Base {
	case Bool:
		return "sql.NullBool{}"
	case UInt8:
		return "sql.NullByte{}"
	case Int16, Int32, Int64:
		return "sql.Null" + strings.ToUpper(string(f.sql.Base[:1])) + string(f.sql.Base[1:]) + "{}"
	case Float32, Float64:
		return "sql.NullFloat64{}"
	case Bytes:
		return "[]byte(nil)"
	case Date:
		return "mssql.NullDate{}"
	case Time:
		return "mssql.NullTime{}"
	case DateTime:
		return "mssql.NullDateTime{}"
	case Instant:
		if strings.HasPrefix(strings.ToLower(f.sql.SQL), "datetimeoffset") {
			return "sql.NullTime{}"
		}
		return "mssql.NullDateTime{}"
	}
	return "sql.NullString{}"
}

// places are where the columns of a row go.
func (e *emitter) places(c *call) string {
	places := make([]string, len(c.columns))
	for i, f := range c.columns {
		places[i] = "&r." + f.goName
		if e.Engine == MSSQL {
			places[i] = mssqlPlace(f, places[i])
		}
	}
	return strings.Join(places, ", ")
}

func mssqlPlace(f field, place string) string {
	wrapper := ""
	switch f.sql.Base {
	case Instant:
		wrapper = "utc"
		if strings.HasPrefix(strings.ToLower(f.sql.SQL), "datetimeoffset") {
			wrapper = ""
		}
	case UUID:
		wrapper = "guid"
	case Date, Time, DateTime:
		wrapper = map[Base]string{Date: "day", Time: "timeOfDay", DateTime: "dayAndTime"}[f.sql.Base]
	case JSON:
		return "jsonText{" + place + "}"
	}
	if wrapper == "" {
		return place
	}
	if f.pointer {
		return "orNull(" + place + ", " + wrapper + ")"
	}
	return "place(" + place + ", " + wrapper + ")"
}
