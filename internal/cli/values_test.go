package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDurationsAreGoDurationsWithDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1ms": time.Millisecond, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * day, "1d12h": 36 * time.Hour,
		"0d1s": time.Second, "1.5s": 1500 * time.Millisecond, "3652d12h": maxDuration, "87660h": maxDuration,
	} {
		got, err := parseDuration(text, false)
		assert.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "30", "0", "0s", "-1s", "1d-2h", "-1d", "d", "1.5d", "1s1d", "1us", "1500us", "87660h1ms", "3653d", "999999999d",
		"9999999999d", "99999999999h", "1 s", "1w", "eternity",
	} {
		_, err := parseDuration(text, false)
		assert.Error(t, err, text)
	}
	for _, text := range []string{"0", "0s", "0d"} {
		got, err := parseDuration(text, true)
		assert.NoError(t, err, text)
		assert.Zero(t, got)
	}
}

func TestJSONHasTimesInUTCWithMicroseconds(t *testing.T) {
	t.Parallel()
	type inner struct {
		At   time.Time  `json:"at"`
		Gone *time.Time `json:"gone"`
	}
	value := struct {
		inner
		Raw   json.RawMessage `json:"raw"`
		None  json.RawMessage `json:"none"`
		List  []inner         `json:"list"`
		Empty []string        `json:"empty"`
		Left  string          `json:"left,omitempty"`
		Text  string          `json:"text"`
		Ptr   *int64          `json:"ptr"`
	}{
		inner: inner{At: time.Date(2026, 1, 31, 9, 0, 0, 120_000_000, time.FixedZone("CET", 3600))},
		Raw:   json.RawMessage(`{"a": [1, "<b>"]}`),
		List:  []inner{{}},
		Text:  "<&>\u009b\x7f",
	}
	assert.Equal(t, `{"at":"2026-01-31T08:00:00.120000Z","gone":null,"raw":{"a":[1,"<b>"]},"none":null,`+
		`"list":[{"at":null,"gone":null}],"empty":[],"text":"<&>\u009b\u007f","ptr":null}`, string(toJSON(value)))
	var back map[string]any
	require.NoError(t, json.Unmarshal(toJSON(value), &back))
	assert.Equal(t, value.Text, back["text"])
}

func TestTextForATerminalIsHarmless(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain äö 日本 🙂":        "plain äö 日本 🙂",
		"\x1b[31mred":          `\x1b[31mred`,
		"\u009b2J":             `\u009b2J`,
		"a\tb\r\nc\x00":        `a\tb\r\nc\x00`,
		"abc\u202edef\u200b":   `abc\u202edef\u200b`,
		"bad \xff\x9b2J":       "bad \uFFFD2J",
		"non-breaking\u00a0is": `non-breaking\u00a0is`,
	} {
		assert.Equal(t, want, printable(text))
	}
}
