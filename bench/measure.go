package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// The two sides of a comparison: what is measured, and what it is measured against.
const (
	baseline = iota
	measured
)

// call is one timed round trip, and what must happen before it without being timed (nil: nothing).
type call struct {
	before func(ctx context.Context) error
	call   func(ctx context.Context) error
}

// client makes the calls of both sides. It is used by one goroutine.
type client [2]call

// measureAll runs the chosen comparisons one after the other.
func measureAll(ctx context.Context, cfg config, progress io.Writer) (Report, error) {
	chosen, err := choose(cfg.only)
	if err != nil {
		return Report{}, err
	}
	s, err := openServer(ctx, cfg.dsn)
	if err != nil {
		return Report{}, err
	}
	defer s.close(ctx, progress)
	report := Report{
		Engine:   cfg.engine,
		Version:  s.version,
		Settings: s.settings,
		CPUs:     runtime.NumCPU(),
		Slices:   cfg.slices,
		SliceMS:  cfg.slice.Milliseconds(),
		Passed:   true,
	}
	for _, c := range chosen {
		results, err := c.measure(ctx, s, cfg, progress)
		if err != nil {
			return Report{}, fmt.Errorf("measure %s: %w", c.name, err)
		}
		report.add(results)
	}
	return report, nil
}

// measure runs one comparison with each number of clients.
func (c comparison) measure(ctx context.Context, s *server, cfg config, progress io.Writer) ([]Result, error) {
	var results []Result
	databases, drop, err := c.databases(ctx, s, progress)
	if err != nil {
		return nil, err
	}
	defer drop()
	for _, n := range cfg.clients {
		fmt.Fprintf(progress, "%s, %d clients:", c.name, n)
		slices, err := c.measureWith(ctx, databases, n, cfg, progress)
		fmt.Fprintln(progress)
		if err != nil {
			return nil, err
		}
		results = append(results, c.result(n, slices))
	}
	return results, nil
}

// measureWith runs the slices of one comparison with n clients, each on its own connections throughout.
func (c comparison) measureWith(
	ctx context.Context, databases []*database, n int, cfg config, progress io.Writer,
) ([]slice, error) {
	if err := c.reset(ctx, databases); err != nil {
		return nil, err
	}
	clients := make([]client, n)
	for i := range clients {
		var closeAll func()
		var err error
		clients[i], closeAll, err = c.connect(ctx, databases, share{client: i, of: n})
		if err != nil {
			return nil, err
		}
		defer closeAll()
	}
	// The first calls plan the statements and fill the caches.
	if _, err := runSlice(ctx, clients, min(cfg.slice, time.Second)); err != nil {
		return nil, err
	}
	measuredSlices := make([]slice, 0, cfg.slices)
	for range cfg.slices {
		one, err := runSlice(ctx, clients, cfg.slice)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, " %.2f", one.ratio())
		measuredSlices = append(measuredSlices, one)
	}
	return measuredSlices, nil
}

// slice holds the latencies of one slice, of all clients together, by side.
type slice [2][]time.Duration

// runSlice lets all clients call until the time is over.
func runSlice(ctx context.Context, clients []client, length time.Duration) (slice, error) {
	group, ctx := errgroup.WithContext(ctx)
	deadline := time.Now().Add(length)
	parts := make([]slice, len(clients))
	for i, c := range clients {
		group.Go(func() (err error) {
			parts[i], err = c.callUntil(ctx, deadline)
			return err
		})
	}
	err := group.Wait()
	var all slice
	for _, part := range parts {
		for side := range all {
			all[side] = append(all[side], part[side]...)
		}
	}
	return all, err
}

// callUntil alternates between the sides call by call. Which one comes first alternates too, so that
// neither always runs in the other's wake. Both sides make the same number of calls.
func (c client) callUntil(ctx context.Context, deadline time.Time) (slice, error) {
	var latencies slice
	for round := 0; time.Now().Before(deadline) || round == 0; round++ {
		for i := range c {
			side := (round + i) % len(c)
			took, err := c[side].time(ctx)
			if err != nil {
				return slice{}, err
			}
			latencies[side] = append(latencies[side], took)
		}
	}
	return latencies, nil
}

func (c call) time(ctx context.Context) (time.Duration, error) {
	if c.before != nil {
		if err := c.before(ctx); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := c.call(ctx)
	return time.Since(start), err
}

// ratio is the median of the baseline over the median of what is measured: 1 is as fast, above 1 is faster.
func (s slice) ratio() float64 {
	return float64(median(s[baseline])) / float64(median(s[measured]))
}

// median sorts the values.
func median[T ~int64 | ~float64](values []T) T {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
