package codegen

import (
	"fmt"
	"slices"
	"strings"
)

// types writes the words, the parameters and the results.
func (e *emitter) types() string {
	var b strings.Builder
	for _, words := range e.words {
		e.writeWords(&b, words)
	}
	for _, group := range e.Groups {
		e.writeGroup(&b, group)
	}
	for _, c := range e.routines {
		e.writeParams(&b, c)
		e.writeResult(&b, c)
	}
	if e.Interface != "" {
		e.writeInterface(&b)
	}
	return "package " + e.Package + "\n\n" + imports(b.String(), typeImports) + b.String()
}

var typeImports = map[string]string{"context.": "context", "json.": "encoding/json", "time.": "time", "civil.": "github.com/golang-sql/civil"}

// imports writes the import declaration of those packages that the text uses.
func imports(text string, known map[string]string) string {
	var own, others []string
	for use, importPath := range known {
		if !usesPackage(text, use) {
			continue
		}
		line := fmt.Sprintf("\t%q\n", importPath)
		if name, aliased, found := strings.Cut(importPath, " "); found {
			line = fmt.Sprintf("\t%s %q\n", name, aliased)
		}
		if strings.Contains(strings.SplitN(importPath, "/", 2)[0], ".") || strings.Contains(importPath, " ") {
			others = append(others, line)
		} else {
			own = append(own, line)
		}
	}
	if len(own)+len(others) == 0 {
		return ""
	}
	slices.Sort(own)
	slices.Sort(others)
	return "import (\n" + strings.Join(own, "") + "\n" + strings.Join(others, "") + ")\n\n"
}

// usesPackage looks for the package's name where code can have it: not inside another name, nor in a comment.
func usesPackage(text, use string) bool {
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "// ")
		for rest := code; ; {
			i := strings.Index(rest, use)
			if i < 0 {
				break
			}
			if i == 0 || strings.ContainsRune(" \t*[](){},&", rune(rest[i-1])) {
				return true
			}
			rest = rest[i+len(use):]
		}
	}
	return false
}

func (e *emitter) writeWords(b *strings.Builder, words wordType) {
	fmt.Fprintf(b, "// %s is a word that the database says or is told. A newer database may have more of them.\ntype %s string\n\n", words.name, words.name)
	fmt.Fprintf(b, "// Words of %s.\nconst (\n", words.name)
	taken := map[string]bool{}
	for _, word := range words.words {
		name := words.name + strings.TrimPrefix(exported(word), "X")
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s%d", words.name+exported(word), n)
		}
		taken[name] = true
		fmt.Fprintf(b, "\t%s %s = %q\n", name, words.name, word)
	}
	fmt.Fprintf(b, ")\n\n// String is the word.\nfunc (w %s) String() string { return string(w) }\n\n", words.name)
	if words.name != "Outcome" || len(e.Accepting) == 0 {
		return
	}
	var yes []string
	for _, word := range words.words {
		if slices.Contains(e.Accepting, word) {
			yes = append(yes, words.name+exported(word))
		}
	}
	fmt.Fprintf(b, `// Accepted tells whether the outcome says yes. A word that is not known here is a refusal: a newer database may
// refuse in words of its own.
func (w Outcome) Accepted() bool {
	switch w {
	case %s:
		return true
	}
	return false
}

`, strings.Join(yes, ", "))
}

func (e *emitter) writeGroup(b *strings.Builder, group Group) {
	for _, c := range e.routines {
		for _, fields := range [][]field{c.params, c.columns} {
			i := slices.IndexFunc(fields, func(f field) bool { return f.group != nil && f.group.Name == group.Name })
			if i < 0 {
				continue
			}
			b.WriteString(comment("", group.Doc) + "type " + group.Name + " struct {\n")
			for _, f := range fields[i : i+len(group.Names)] {
				writeField(b, f, group.JSON)
			}
			b.WriteString("}\n\n")
			return
		}
	}
}

func (e *emitter) writeParams(b *strings.Builder, c *call) {
	if len(c.params) == 0 {
		return
	}
	doc := fmt.Sprintf("%sParams are the parameters of %s.%s.", c.goName, c.Schema, c.Name)
	if slices.ContainsFunc(c.params, func(f field) bool { return f.optional }) {
		doc += " What is nil or empty among the optional ones is left out, and has the routine's default."
	}
	b.WriteString(comment("", doc))
	writeStruct(b, c.goName+"Params", c.params, false)
}

func (e *emitter) writeResult(b *strings.Builder, c *call) {
	if len(c.columns) == 0 {
		return
	}
	b.WriteString(comment("", fmt.Sprintf("%sResult is a row of the answer of %s.%s.", c.goName, c.Schema, c.Name)))
	writeStruct(b, c.goName+"Result", c.columns, true)
	if len(e.Accepting) > 0 && slices.ContainsFunc(c.columns, func(f field) bool { return f.base == "Outcome" }) {
		fmt.Fprintf(b, "// Accepted tells whether the outcome says yes: see Outcome.Accepted.\nfunc (r %sResult) Accepted() bool { return r.Outcome.Accepted() }\n\n", c.goName)
	}
}

func writeStruct(b *strings.Builder, name string, fields []field, tagged bool) {
	fmt.Fprintf(b, "type %s struct {\n", name)
	for i, f := range fields {
		if f.group == nil {
			writeField(b, f, tagged)
		} else if i == 0 || fields[i-1].group != f.group {
			fmt.Fprintf(b, "\t%s\n", f.group.Name)
		}
	}
	b.WriteString("}\n\n")
}

func writeField(b *strings.Builder, f field, tagged bool) {
	switch {
	case f.doc != "":
		b.WriteString(comment("\t", f.doc))
	case f.optional:
		b.WriteString(comment("\t", "Optional."))
	}
	fmt.Fprintf(b, "\t%s %s", f.goName, f.goType())
	if tagged {
		fmt.Fprintf(b, " `json:%q`", f.name)
	}
	b.WriteString("\n")
}

func (e *emitter) writeInterface(b *strings.Builder) {
	fmt.Fprintf(b, "// %s are the routines, whatever the engine. Errors are of the type *Error.\ntype %s interface {\n", e.Interface, e.Interface)
	for _, c := range e.routines {
		if !c.inTransaction {
			fmt.Fprintf(b, "\t%s\n", e.signature(c))
		}
	}
	b.WriteString("}\n\n")
	if len(e.InTransaction) == 0 {
		return
	}
	fmt.Fprintf(b, "// %sInTx are the routines on an open transaction: all of them.\ntype %sInTx interface {\n\t%s\n", e.Interface, e.Interface, e.Interface)
	for _, c := range e.routines {
		if c.inTransaction {
			fmt.Fprintf(b, "\t%s\n", e.signature(c))
		}
	}
	b.WriteString("}\n")
}

// signature is the method's, with the names of the package it is written in.
func (e *emitter) signature(c *call) string {
	prefix := ""
	if !e.has(TypesPart) {
		prefix = e.qualified("")
	}
	params := "ctx context.Context"
	if len(c.params) > 0 {
		params += ", p " + prefix + c.goName + "Params"
	}
	switch {
	case len(c.columns) == 0:
		return fmt.Sprintf("%s(%s) (err error)", c.goName, params)
	case c.Result.Cardinality == Rows:
		return fmt.Sprintf("%s(%s) (all []%s%sResult, err error)", c.goName, params, prefix, c.goName)
	}
	return fmt.Sprintf("%s(%s) (r %s%sResult, err error)", c.goName, params, prefix, c.goName)
}
