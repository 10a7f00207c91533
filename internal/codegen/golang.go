package codegen

import (
	"fmt"
	"go/token"
	"strings"
	"unicode"
)

// initialisms are written in capitals in Go names.
var initialisms = map[string]bool{
	"api": true, "cpu": true, "db": true, "dns": true, "html": true, "http": true, "https": true, "id": true, "ip": true,
	"json": true, "ms": true, "os": true, "ram": true, "sql": true, "ttl": true, "uid": true, "uri": true, "url": true,
	"utc": true, "utf8": true, "uuid": true, "xml": true,
}

// exported turns a name of the database into an exported Go name: max_source_age_ms is MaxSourceAgeMS. Characters
// that Go does not know in names part words; what begins with no capital letter gets an X in front.
func exported(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if initialisms[strings.ToLower(word)] {
			b.WriteString(strings.ToUpper(word))
			continue
		}
		runes := []rune(word)
		b.WriteString(string(unicode.ToUpper(runes[0])) + string(runes[1:]))
	}
	if made := b.String(); token.IsExported(made) {
		return made
	}
	return "X" + b.String()
}

// fieldNames gives each name of a struct's fields, none of them twice. PostgreSQL's parameters often begin with p_
// so that they do not hide columns; where all of them do, the fields do not.
func fieldNames(names []string) []string {
	prefixed := len(names) > 0
	for _, name := range names {
		prefixed = prefixed && len(name) > 2 && strings.HasPrefix(name, "p_")
	}
	taken := map[string]bool{}
	fields := make([]string, len(names))
	for i, name := range names {
		if prefixed {
			name = name[2:]
		}
		if name == "" {
			name = fmt.Sprintf("arg%d", i+1)
		}
		field := exported(name)
		for n := 2; taken[field]; n++ {
			field = fmt.Sprintf("%s%d", exported(name), n)
		}
		taken[field] = true
		fields[i] = field
	}
	return fields
}

// plainName is a parameter's name without the prefix p_.
func plainName(name string) string { return strings.TrimPrefix(name, "p_") }

// goType is the Go type of a value that is not NULL. Exactness comes first: what Go has no exact type for is the
// text that the server writes.
func goType(e Engine, t Type) (string, error) {
	switch t.Base {
	case Bool:
		return "bool", nil
	case UInt8:
		return "uint8", nil
	case Int16, Int32, Int64, Float32, Float64:
		return string(t.Base), nil
	case Text, Decimal, Money, XML, Interval:
		return "string", nil
	case Bytes:
		return "[]byte", nil
	case UUID:
		return "[16]byte", nil
	case JSON:
		return "json.RawMessage", nil
	case Instant:
		return "time.Time", nil
	case Date, Time, DateTime:
		return goTimeType(e, t), nil
	case Other:
		if e == Postgres {
			return "string", nil
		}
	case Enum:
		return exported(unqualified(t.SQL)), nil
	case Array:
		if t.Elem != nil && !asText(*t.Elem) {
			elem, err := goType(e, *t.Elem)
			return "[]" + elem, err
		}
	}
	return "", fmt.Errorf("type %s (%s) has no Go type here: return or take it as text, or leave the routine out with --except", t.SQL, t.Base)
}

func goTimeType(e Engine, t Type) string {
	if e == MSSQL {
		return map[Base]string{Date: "civil.Date", Time: "civil.Time", DateTime: "civil.DateTime"}[t.Base]
	}
	if t.Base == Time {
		return "string"
	}
	return "time.Time"
}

// asText tells which values travel as text on PostgreSQL: pgx has no exact Go type for them, or would have to be
// told about the type on each connection first.
func asText(t Type) bool {
	switch t.Base {
	case Decimal, Money, XML, Interval, Time, Other, Enum:
		return true
	}
	return false
}

// nilable tells whether the Go type has a nil of its own, which stands for NULL.
func nilable(goType string) bool {
	return strings.HasPrefix(goType, "[]") || goType == "json.RawMessage"
}

// unqualified is a type's or a routine's name without its schema.
func unqualified(name string) string {
	if i := strings.LastIndex(name, "."); i >= 0 {
		return name[i+1:]
	}
	return name
}

// defaultIsZero tells whether leaving the parameter out means the same as Go's zero value, which can then be sent
// always and needs no pointer.
func defaultIsZero(p Param) bool {
	if p.Default == nil || p.Nullable {
		return false
	}
	text := strings.ToLower(strings.Trim(*p.Default, "()"))
	switch p.Type.Base {
	case Bool:
		return text == "false" || text == "0"
	case Int16, Int32, Int64, UInt8, Float32, Float64:
		return text == "0"
	}
	return false
}

// comment writes a documentation comment.
func comment(indent string, paragraphs ...string) string {
	var b strings.Builder
	for i, paragraph := range paragraphs {
		if i > 0 {
			b.WriteString(indent + "//\n")
		}
		for _, line := range wrapped(paragraph, 110) {
			b.WriteString(indent + strings.TrimRight("// "+line, " ") + "\n")
		}
	}
	return b.String()
}

func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
