package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Formats of standard output.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatJSONL = "jsonl"
)

// format is the flag -o.
type format struct{ enumFlag }

func (f *format) register(cmd *cobra.Command, flags *pflag.FlagSet) {
	f.enumFlag = enumFlag{value: formatTable, allowed: []string{formatTable, formatJSON, formatJSONL}}
	flags.VarP(f, "output", "o", "format of standard output: "+f.list())
	complete(cmd, "output", f.allowed)
}

// isJSON tells whether standard output is read by a program.
func (f *format) isJSON() bool { return f.value != formatTable }

// guess finds out what -o asks for on a command line that cobra gave up on, so that the program which reads
// standard output gets its error object.
func (f *format) guess(args []string) {
	for i, arg := range args {
		value, found := "", false
		switch {
		case arg == "--":
			return
		case arg == "-o" || arg == "--output":
			if i+1 < len(args) {
				value, found = args[i+1], true
			}
		case strings.HasPrefix(arg, "--output="):
			value, found = strings.TrimPrefix(arg, "--output="), true
		case strings.HasPrefix(arg, "-o"):
			value, found = strings.TrimPrefix(strings.TrimPrefix(arg, "-o"), "="), true
		}
		if found && slices.Contains(f.allowed, value) {
			f.value = value
		}
	}
}

// printRow writes one row: an object, or in table mode a line for each column.
func (a *app) printRow(row any) error {
	if a.output.isJSON() {
		return a.printJSON(row)
	}
	t := newTable(a.stdout)
	for _, column := range columnsOf(row) {
		if column.value == nil && strings.HasPrefix(column.name, "observed_") {
			continue // there was nothing to explain
		}
		t.AppendRow(table.Row{column.name, cell(column.value)})
	}
	return a.render(t)
}

// printRows writes rows: an array, an object a line, or a table with a header.
func printRows[T any](a *app, rows []T) error {
	switch a.output.value {
	case formatJSONL:
		for _, row := range rows {
			if err := a.printJSON(row); err != nil {
				return err
			}
		}
		return nil
	case formatJSON:
		if rows == nil {
			rows = []T{}
		}
		return a.printJSON(rows)
	}
	t := newTable(a.stdout)
	var none T
	columns := columnsOf(none)
	shown := make([]bool, len(columns))
	for i, column := range columns {
		shown[i] = !column.sparse || slices.ContainsFunc(rows, func(row T) bool { return columnsOf(row)[i].value != nil })
	}
	var header table.Row
	for i, column := range columns {
		if shown[i] {
			header = append(header, strings.ReplaceAll(strings.ToUpper(column.name), "_", " "))
		}
	}
	t.AppendHeader(header)
	for _, row := range rows {
		var cells table.Row
		for i, column := range columnsOf(row) {
			if shown[i] {
				cells = append(cells, cell(column.value))
			}
		}
		t.AppendRow(cells)
	}
	return a.render(t)
}

// printReport writes a result that holds lists: whole for programs, for people its summary and a table.
func (a *app) printReport(whole, summary any, table func() error) error {
	if a.output.isJSON() {
		return a.printJSON(whole)
	}
	if err := a.printRow(summary); err != nil {
		return err
	}
	if err := a.printText("\n"); err != nil {
		return err
	}
	return table()
}

// printText writes text that is data, such as an SQL script.
func (a *app) printText(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

func (a *app) printJSON(value any) error {
	return a.printText(string(toJSON(value)) + "\n")
}

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SuppressTrailingSpaces()
	t.SetStyle(table.Style{
		Name:   "plain",
		Box:    table.BoxStyle{PaddingRight: "  "},
		Format: table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault},
	})
	return t
}

func (a *app) render(t table.Writer) error {
	if rendered := t.Render(); rendered != "" {
		return a.printText(rendered + "\n")
	}
	return nil
}

// cell is a value as a table shows it: NULL as "-", and nothing that a terminal would act on.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case string:
		return printable(v)
	case jsonText:
		return printable(string(v))
	case []string:
		if len(v) == 0 {
			return "-"
		}
		lines := make([]string, len(v))
		for i, line := range v {
			lines[i] = printable(line)
		}
		return strings.Join(lines, "\n")
	}
	return printable(fmt.Sprint(value))
}

// report says what became of a command that returned an error, and gives its exit code.
func (a *app) report(err error) ExitCode {
	switch problem := err.(type) {
	case refusal:
		return ExitRefused
	case finding:
		return ExitUnfit
	default:
		f := explain(problem)
		a.printFailure(f)
		return f.exit
	}
}

func (a *app) printFailure(f failure) {
	if a.output.isJSON() {
		if err := a.printJSON(struct {
			Error failure `json:"error"`
		}{f}); err == nil {
			return
		}
	}
	a.noteLines("", f.Message)
	a.noteLines("hint: ", f.Hint)
}

// noteLines is note for a text of several lines, such as SQL that a hint asks to run.
func (a *app) noteLines(prefix, text string) {
	for line := range strings.Lines(text) {
		a.note("%s%s", prefix, strings.TrimRight(line, "\r\n"))
	}
}
