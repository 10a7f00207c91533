package cli

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

const mask = "*****"

// Passwords in a text that may quote a connection string. A URL's password goes up to the last @: one that is
// not percent-encoded may hold anything. Masking too much is the lesser fault.
var (
	urlPassword   = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s:/@]*):.*@`)
	valuePassword = regexp.MustCompile(`(?i)((?:ssl)?passw(?:or)?d\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&'"` + "`" + `]+)`)
)

// redact masks the passwords in a text that is about to be shown.
func redact(text string) string {
	text = urlPassword.ReplaceAllString(text, "$1:"+mask+"@")
	return valuePassword.ReplaceAllString(text, "$1"+mask)
}

// printable escapes what a terminal would act on instead of showing: control characters (ESC begins a
// sequence, and so does U+009B), and the invisible ones that change the direction or the look of a line.
func printable(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
