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
	var header table.Row
	for _, column := range columnsOf(none) {
		header = append(header, strings.ReplaceAll(strings.ToUpper(column.name), "_", " "))
	}
	t.AppendHeader(header)
	for _, row := range rows {
		var cells table.Row
		for _, column := range columnsOf(row) {
			cells = append(cells, cell(column.value))
		}
		t.AppendRow(cells)
	}
	return a.render(t)
}

func (a *app) printJSON(value any) error {
	if _, err := fmt.Fprintln(a.stdout, string(toJSON(value))); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
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
	rendered := t.Render()
	if rendered == "" {
		return nil
	}
	if _, err := fmt.Fprintln(a.stdout, rendered); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
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
	message := strings.NewReplacer("\n\t", " ", "\r\n", " ", "\n", " ").Replace(f.Message)
	a.note("%s", message)
	for line := range strings.SplitSeq(f.Hint, "\n") {
		a.note("hint: %s", line)
	}
}
