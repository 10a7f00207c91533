package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/fencectl/fencectl/procs"
)

// signature is what a routine's file declares, in the words of the file.
type signature struct {
	name     string
	names    []string
	types    []string
	defaults int
	// table is true for RETURNS TABLE; result then has name and type of each column, else one type.
	table       bool
	resultNames []string
	resultTypes []string
	language    string
	volatile    bool
	definer     bool
	settings    []string
}

var (
	commentLine = regexp.MustCompile(`(?m)^\s*--.*$`)
	createHead  = regexp.MustCompile(`(?s)^\s*CREATE OR REPLACE FUNCTION fence\.(\w+)\s*\((.*)\)\s*RETURNS\s+(.*?)\s*\nLANGUAGE (\w+)\n(.*)$`)
	setClause   = regexp.MustCompile(`(?m)^SET (\w+) = (.*)$`)
)

// parseSignature reads the head of a routine's file. It knows the form that our files have, no more; a test
// compares it with what the server makes of each file.
func parseSignature(source string) (signature, error) {
	head, _, found := strings.Cut(commentLine.ReplaceAllString(source, ""), "AS $$")
	match := createHead.FindStringSubmatch(head)
	if !found || match == nil {
		return signature{}, fmt.Errorf("no CREATE OR REPLACE FUNCTION fence.… RETURNS … LANGUAGE … AS $$ in it")
	}
	attributes := match[5]
	s := signature{
		name: match[1], language: match[4],
		volatile: strings.Contains(attributes, "VOLATILE"), definer: strings.Contains(attributes, "SECURITY DEFINER"),
	}
	for _, argument := range splitTopLevel(match[2]) {
		declared, _, hasDefault := strings.Cut(argument, " DEFAULT ")
		name, typ, ok := strings.Cut(strings.TrimSpace(declared), " ")
		if !ok {
			return signature{}, fmt.Errorf("argument %q has no type", argument)
		}
		s.names, s.types = append(s.names, name), append(s.types, strings.TrimSpace(typ))
		if hasDefault {
			s.defaults++
		}
	}
	if columns, ok := strings.CutPrefix(match[3], "TABLE"); ok {
		s.table = true
		columns = strings.TrimSpace(columns)
		for _, column := range splitTopLevel(columns[1 : len(columns)-1]) {
			name, typ, _ := strings.Cut(strings.TrimSpace(column), " ")
			s.resultNames, s.resultTypes = append(s.resultNames, name), append(s.resultTypes, strings.TrimSpace(typ))
		}
	} else {
		s.resultTypes = []string{match[3]}
	}
	for _, set := range setClause.FindAllStringSubmatch(attributes, -1) {
		s.settings = append(s.settings, set[1]+"="+set[2])
	}
	return s, nil
}

// splitTopLevel splits a list at its commas, but for those in parentheses and literals.
func splitTopLevel(list string) []string {
	var parts []string
	depth, quoted, from := 0, false, 0
	for i, c := range list {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, list[from:i])
			from = i + 1
		}
	}
	if strings.TrimSpace(list[from:]) != "" {
		parts = append(parts, list[from:])
	}
	return parts
}

// file puts a routine's signature into the server's terms.
func (s signature) file(routine procs.Routine, source string, typeNames, quoted map[string]string) File {
	types := make([]string, len(s.types))
	for i, t := range s.types {
		types[i] = typeNames[t]
	}
	sum := sha256.Sum256([]byte(source))
	f := File{
		Routine:         routine,
		Kind:            "FUNCTION",
		Hash:            hex.EncodeToString(sum[:]),
		Identity:        fmt.Sprintf("fence.%s(%s)", quoted[s.name], strings.Join(types, ",")),
		ArgumentNames:   s.names,
		Defaults:        s.defaults,
		Language:        s.language,
		Volatile:        s.volatile,
		SecurityDefiner: s.definer,
		Settings:        s.settings,
	}
	if !s.table {
		f.Result = typeNames[s.resultTypes[0]]
		return f
	}
	columns := make([]string, len(s.resultNames))
	for i, name := range s.resultNames {
		columns[i] = quoted[name] + " " + typeNames[s.resultTypes[i]]
	}
	f.Result = "TABLE(" + strings.Join(columns, ", ") + ")"
	return f
}
