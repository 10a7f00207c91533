package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// maxDuration is the longest time that the database takes: 10 years.
const maxDuration = 315_576_000_000 * time.Millisecond

// durationFlag is a length of time in whole milliseconds: a Go duration that may start with days ("30d", "1d12h").
type durationFlag struct {
	value     time.Duration
	given     bool
	allowZero bool
}

// Set implements pflag.Value.
func (d *durationFlag) Set(text string) error {
	value, err := parseDuration(text, d.allowZero)
	if err != nil {
		return err
	}
	d.value, d.given = value, true
	return nil
}

// String implements pflag.Value. A duration without a default shows none in the help text.
func (d *durationFlag) String() string {
	if d.value == 0 {
		return ""
	}
	return d.value.String()
}

// Type implements pflag.Value.
func (*durationFlag) Type() string { return "duration" }

// ms returns the duration as the database takes it.
func (d *durationFlag) ms() int64 { return d.value.Milliseconds() }

func parseDuration(text string, allowZero bool) (time.Duration, error) {
	value, err := parseDays(text)
	switch {
	case err != nil:
		return 0, err
	case value < 0:
		return 0, errors.New("it must not be negative")
	case value == 0 && !allowZero:
		return 0, errors.New("it must be at least 1ms")
	case value > maxDuration:
		return 0, errors.New("it must be at most 10 years (87660h)")
	case value%time.Millisecond != 0:
		return 0, errors.New("it must be whole milliseconds")
	}
	return value, nil
}

// parseDays reads a Go duration with an optional number of days before it.
func parseDays(text string) (time.Duration, error) {
	if regexp.MustCompile(`^[0-9]+$`).MatchString(text) && text != "0" {
		return 0, fmt.Errorf("it needs a unit: %ss, %sms, %sm, %sh or %sd", text, text, text, text, text)
	}
	parts := regexp.MustCompile(`^([0-9]{1,9})d(.*)$`).FindStringSubmatch(text)
	if parts == nil {
		value, err := time.ParseDuration(text)
		if err != nil {
			return 0, errors.New("it is not a duration like 500ms, 30s, 1h30m or 7d")
		}
		return value, nil
	}
	days, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || days > int64(maxDuration/(24*time.Hour))+1 {
		return 0, errors.New("it must be at most 10 years (87660h)")
	}
	value := time.Duration(days) * 24 * time.Hour
	if parts[2] == "" {
		return value, nil
	}
	rest, err := time.ParseDuration(parts[2])
	if err != nil || rest < 0 {
		return 0, errors.New("it is not a duration like 500ms, 30s, 1h30m or 7d")
	}
	return value + rest, nil
}
