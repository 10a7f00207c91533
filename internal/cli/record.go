package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// column is a name and a value of a row; a nil value is NULL.
type column struct {
	name  string
	value any
	// sparse columns stand in a table only when a row has a value there.
	sparse bool
}

// jsonText is a value that is JSON already.
type jsonText string

// timeLayout is RFC 3339 with all of PostgreSQL's microseconds, always in UTC.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// columnsOf gives the exported fields of a struct in their order, embedded ones in their place, named by their
// json tags. Fields tagged `table:"-"` are left out: they are for programs. Those tagged `table:"sparse"` are sparse.
func columnsOf(row any) []column {
	var columns []column
	for _, f := range fieldsOf(reflect.ValueOf(row)) {
		if f.tag.Get("table") != "-" {
			columns = append(columns, column{f.name, plain(f.value), f.tag.Get("table") == "sparse"})
		}
	}
	return columns
}

type field struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

func fieldsOf(v reflect.Value) []field {
	var fields []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fields = append(fields, fieldsOf(v.Field(i))...)
		case !f.IsExported() || name == "-":
		case options == "omitempty" && v.Field(i).IsZero():
		default:
			fields = append(fields, field{name, f.Tag, v.Field(i)})
		}
	}
	return fields
}

// plain is a field's value without pointers, with times as text; NULL is nil.
func plain(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Time:
		if value.IsZero() {
			return nil
		}
		return value.UTC().Format(timeLayout)
	case json.RawMessage:
		if len(value) == 0 {
			return nil
		}
		return jsonText(value)
	}
	return v.Interface()
}

// toJSON is json.Marshal with three differences: times are in UTC with microseconds, HTML is not escaped, and
// control characters above U+007F are, since a terminal acts on them.
func toJSON(value any) []byte {
	var b bytes.Buffer
	writeJSON(&b, reflect.ValueOf(value))
	var escaped bytes.Buffer
	for _, r := range b.String() {
		if r >= 0x7F && r <= 0x9F {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.Bytes()
}

func writeJSON(b *bytes.Buffer, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("null")
		return
	}
	switch value := plain(v).(type) {
	case nil:
		b.WriteString("null")
		return
	case jsonText:
		if json.Compact(b, []byte(value)) == nil {
			return
		}
	case string:
		writeScalar(b, value)
		return
	}
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		b.WriteByte('{')
		for i, f := range fieldsOf(v) {
			separate(b, i)
			writeScalar(b, f.name)
			b.WriteByte(':')
			writeJSON(b, f.value)
		}
		b.WriteByte('}')
	case reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			separate(b, i)
			writeJSON(b, v.Index(i))
		}
		b.WriteByte(']')
	default:
		writeScalar(b, v.Interface())
	}
}

func separate(b *bytes.Buffer, i int) {
	if i > 0 {
		b.WriteByte(',')
	}
}

func writeScalar(b *bytes.Buffer, value any) {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		b.WriteString("null")
		return
	}
	b.Truncate(b.Len() - 1) // the encoder's line break
}
