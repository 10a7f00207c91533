// Command bench compares each routine of the schema fence with the shortest hand-written SQL of the same
// effect, on a throwaway server or on one that is named. README.md says what is measured, and how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Exit codes: those of the fencectl command.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitMissed      = 3
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// config is the command line.
type config struct {
	engine  string
	output  string
	dsn     string
	only    []string
	clients []int
	slices  int
	slice   time.Duration
	check   bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	report, err := measureAll(ctx, cfg, stderr)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitInterrupted
	}
	if err == nil {
		err = write(stdout, cfg.output, report)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitError
	}
	if cfg.check && !report.Passed {
		return exitMissed
	}
	return exitDone
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{clients: []int{1, 8}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.engine, "engine", "postgres", "what to measure: postgres")
	flags.StringVar(&cfg.output, "o", "table", "output: table or json")
	flags.StringVar(&cfg.dsn, "dsn", "", "a server to use; the user must be allowed to create databases\n(default: a throwaway server with durable settings)")
	flags.IntVar(&cfg.slices, "slices", 9, "slices of each comparison")
	flags.DurationVar(&cfg.slice, "slice", 2*time.Second, "length of a slice")
	flags.BoolVar(&cfg.check, "check", false, "end with exit code 3 when a bar is missed")
	flags.Func("clients", "numbers of concurrent clients, separated by commas (default 1,8)", func(s string) (err error) {
		cfg.clients, err = numbers(s)
		return err
	})
	flags.Func("only", "names of the comparisons to run, separated by commas (default all):\n"+strings.Join(names(), ", "),
		func(s string) error {
			cfg.only = strings.Split(s, ",")
			return nil
		})
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	return cfg, cfg.validate(flags.Args())
}

func (c config) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("argument %q is not known", rest[0])
	case c.engine != "postgres":
		return fmt.Errorf("engine %q is not known: postgres", c.engine)
	case c.output != "table" && c.output != "json":
		return fmt.Errorf("output %q is not known: table, json", c.output)
	case c.slices < 1 || c.slice <= 0:
		return errors.New("slices and slice must be above 0")
	}
	_, err := choose(c.only)
	return err
}

func numbers(s string) ([]int, error) {
	var list []int
	for field := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > maxClients {
			return nil, fmt.Errorf("%q is not a number from 1 to %d", field, maxClients)
		}
		list = append(list, n)
	}
	return list, nil
}
