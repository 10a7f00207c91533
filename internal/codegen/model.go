package codegen

// Engine is the database engine that a routine belongs to.
type Engine string

// Engines.
const (
	Postgres Engine = "postgres"
	MSSQL    Engine = "mssql"
)

// Kind says how a routine is called.
type Kind string

// Kinds of routines.
const (
	Function  Kind = "function"
	Procedure Kind = "procedure"
)

// Routine is one stored procedure or function: all that a caller must know, wherever it was read from.
type Routine struct {
	Engine Engine `json:"engine"`
	Schema string `json:"schema"`
	// Name without its schema, as the server keeps it.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Doc is the declared header's first paragraph, or the routine's comment in the catalogue.
	Doc    string  `json:"doc,omitempty"`
	Params []Param `json:"params"`
	Result Result  `json:"result"`
	// Errors that it raises on purpose.
	Errors []Error `json:"errors,omitempty"`
	// Locks is the header's line about locks, for the reference.
	Locks string `json:"locks,omitempty"`
}

// Mode is the direction of a parameter.
type Mode string

// Modes of parameters. A column of RETURNS TABLE is a column of the result, not a parameter.
const (
	In       Mode = "in"
	Out      Mode = "out"
	InOut    Mode = "inout"
	Variadic Mode = "variadic"
)

// Param is a parameter of a routine.
type Param struct {
	// Name as the server keeps it, without T-SQL's @; empty where PostgreSQL's parameter has none.
	Name string `json:"name"`
	Type Type   `json:"type"`
	Mode Mode   `json:"mode"`
	// Nullable tells whether NULL may be passed (or comes back, from Out and InOut).
	Nullable bool `json:"nullable"`
	// Default is the default's text in SQL; nil where there is none. A caller that does not set such a
	// parameter leaves it out.
	Default *string `json:"default,omitempty"`
	// Words is the closed set of values, where there is one.
	Words []string `json:"words,omitempty"`
	Doc   string   `json:"doc,omitempty"`
}

// Cardinality says how many rows an answer has.
type Cardinality string

// Cardinalities.
const (
	NoRows Cardinality = "none" // no result set
	OneRow Cardinality = "one"  // exactly one
	Rows   Cardinality = "many" // any number
)

// Result is what a routine answers with, its OUT parameters apart.
type Result struct {
	Cardinality Cardinality `json:"cardinality"`
	Columns     []Column    `json:"columns,omitempty"`
	// Status tells that the routine's return status means something (T-SQL's RETURN n).
	Status bool `json:"status,omitempty"`
}

// Column is a column of the result.
type Column struct {
	Name     string   `json:"name"`
	Type     Type     `json:"type"`
	Nullable bool     `json:"nullable"`
	Words    []string `json:"words,omitempty"`
	Doc      string   `json:"doc,omitempty"`
}

// Error is an error that a routine raises on purpose.
type Error struct {
	// Code is the SQLSTATE or the number.
	Code string `json:"code"`
	Doc  string `json:"doc"`
}

// Base is the kind of a type, the same word on both engines where they mean the same.
type Base string

// Bases.
const (
	Bool      Base = "bool"
	UInt8     Base = "uint8" // T-SQL's tinyint
	Int16     Base = "int16"
	Int32     Base = "int32"
	Int64     Base = "int64"
	Float32   Base = "float32"
	Float64   Base = "float64"
	Decimal   Base = "decimal"
	Money     Base = "money"
	Text      Base = "text"
	Bytes     Base = "bytes"
	UUID      Base = "uuid"
	JSON      Base = "json"
	XML       Base = "xml"
	Date      Base = "date"
	Time      Base = "time"     // of day, no zone
	DateTime  Base = "datetime" // date and time of day, no zone
	Instant   Base = "instant"  // a moment: timestamptz, datetimeoffset, datetime2 declared to be in UTC
	Interval  Base = "interval"
	Enum      Base = "enum"
	Array     Base = "array"
	Composite Base = "composite" // a row type
	Table     Base = "table"     // T-SQL's table type, as a parameter
	Other     Base = "other"     // travels as text: inet, ltree, sql_variant and so on
)

// Type is the type of a parameter or a column.
type Type struct {
	Base Base `json:"base"`
	// SQL is the type as the engine writes it, with length or precision and, where it is not built in, with
	// its schema: "nvarchar(256)", "numeric(12,2)", "app.mood".
	SQL string `json:"sql"`
	// Length in the engine's units: UTF-16 units of nvarchar, bytes of varbinary; 0: none given, -1: max.
	Length int `json:"length,omitempty"`
	// Precision and Scale of numbers, and Scale alone of times (digits of a second).
	Precision int `json:"precision,omitempty"`
	Scale     int `json:"scale,omitempty"`
	// Domain is the name of the domain or alias type that this is, with its schema.
	Domain string `json:"domain,omitempty"`
	// Words are the labels of an enum.
	Words []string `json:"words,omitempty"`
	// Elem is the type of an array's elements.
	Elem *Type `json:"elem,omitempty"`
	// Fields of a composite or a table type.
	Fields []Column `json:"fields,omitempty"`
}
