package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Table tells the story to a person: a paragraph and a table for each scene, row by row, in 100 columns.
type Table struct {
	out        io.Writer
	generation int  // width of the column; the first one seen decides
	begun      bool // the scene's header is written
}

// NewTable returns a Table that writes to out.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

var _ Teller = (*Table)(nil)

const (
	tableWidth   = 100
	columnGap    = "  "
	lastMinWidth = 20
)

// Scene implements [Teller].
func (t *Table) Scene(title, paragraph string) error {
	gap := ""
	if t.generation > 0 {
		gap = "\n"
	}
	t.begun = false
	_, err := fmt.Fprintf(t.out, "%s%s\n\n%s\n\n", gap, title, indent(text.WrapSoft(paragraph, tableWidth-len(margin))))
	return err
}

// Step implements [Teller].
func (t *Table) Step(s Step) error {
	if t.generation == 0 {
		t.generation = max(len("GEN"), len(generationOf(s)))
	}
	if !t.begun {
		t.begun = true
		if err := t.row("", "ACTOR", "CALL", "OUTCOME", "REASON", "GEN", "WHAT IT SHOWS"); err != nil {
			return err
		}
	}
	call := s.Call
	switch {
	case s.Policy != nil && *s.Policy == "unexpired":
		call += " unexpired"
	case s.Operation != nil:
		call = fmt.Sprintf("%d refused %s", *s.Occurrences, *s.Operation)
	}
	reason := ""
	if s.Reason != nil {
		reason = *s.Reason
	}
	return t.row(number(int64(s.Number)), s.Actor, call, s.Outcome, reason, generationOf(s), s.Shows)
}

// row writes one row. What does not fit into the last column goes on below.
func (t *Table) row(cells ...string) error {
	widths := []int{2, 8, 17, 8, 10, t.generation}
	var b strings.Builder
	for i, width := range widths {
		align := text.AlignLeft
		if i == 0 || i == len(widths)-1 {
			align = text.AlignRight
		}
		b.WriteString(align.Apply(cells[i], width) + columnGap)
	}
	used := b.Len()
	shows := text.WrapSoft(cells[len(widths)], max(tableWidth-used, lastMinWidth))
	for i, line := range strings.Split(shows, "\n") {
		if i > 0 {
			b.WriteString("\n" + strings.Repeat(" ", used))
		}
		b.WriteString(strings.TrimSpace(line))
	}
	_, err := fmt.Fprintln(t.out, strings.TrimRight(b.String(), " "))
	return err
}

func generationOf(s Step) string {
	if s.Generation == nil {
		return ""
	}
	return number(*s.Generation)
}

// margin of a paragraph.
const margin = "    "

func indent(paragraph string) string {
	lines := strings.Split(paragraph, "\n")
	for i, line := range lines {
		lines[i] = margin + strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}
