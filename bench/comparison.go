package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// comparison measures one thing against another.
type comparison struct {
	name string
	// measured and baseline say what the two sides are; empty: the routine, and hand-written SQL.
	measured, baseline string
	// bars are the ratios to reach, by number of clients.
	bars map[int]float64
	// leases are the sizes of the databases that it needs; empty: one with usualLeases.
	leases []int
	// prepared, when not nil, changes what reset has loaded.
	prepare func(ctx context.Context, d *database) error
	// open prepares the two calls of a client.
	open func(ctx context.Context, workers []*worker) (client, error)
}

// comparisons returns all of them, in the order in which they run.
func comparisons() []comparison {
	return []comparison{
		publish(),
		publishWithKey(),
		renew(),
		acquire(),
		acquireWithRequest(),
		refusedRepeatedly(),
		refusedFirst(),
		release(),
		check("check"),
		check("require"),
		diagnose(),
		acquireOfMany(),
	}
}

func names() []string {
	var list []string
	for _, c := range comparisons() {
		list = append(list, c.name)
	}
	return list
}

// choose returns the comparisons of those names, all when there are none.
func choose(only []string) ([]comparison, error) {
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("comparison %q is not known: %s", name, strings.Join(names(), ", "))
		}
	}
	return slices.DeleteFunc(comparisons(), func(c comparison) bool {
		return len(only) > 0 && !slices.Contains(only, c.name)
	}), nil
}

func (c comparison) sides() [2]string {
	sides := [2]string{baseline: c.baseline, measured: c.measured}
	if sides[baseline] == "" {
		sides[baseline] = "hand-written"
	}
	if sides[measured] == "" {
		sides[measured] = "routine"
	}
	return sides
}

// databases makes those that the comparison needs, and returns how to drop them.
func (c comparison) databases(ctx context.Context, s *server, progress io.Writer) ([]*database, func(), error) {
	sizes := c.leases
	if len(sizes) == 0 {
		sizes = []int{usualLeases}
	}
	var made []*database
	drop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		for _, d := range made {
			if err := d.drop(ctx); err != nil {
				fmt.Fprintln(progress, "bench: clean up:", err)
			}
		}
	}
	for _, size := range sizes {
		d, err := s.create(ctx, size)
		if err != nil {
			drop()
			return nil, nil, err
		}
		made = append(made, d)
	}
	return made, drop, nil
}

// reset loads the databases anew.
func (c comparison) reset(ctx context.Context, databases []*database) error {
	for _, d := range databases {
		if err := d.reset(ctx); err != nil {
			return err
		}
		if c.prepare != nil {
			if err := c.prepare(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// connect opens a client with one connection to each database, and returns how to close it.
func (c comparison) connect(ctx context.Context, databases []*database, s share) (client, func(), error) {
	var workers []*worker
	closeAll := func() {
		for _, w := range workers {
			w.conn.Close(context.WithoutCancel(ctx))
		}
	}
	for _, d := range databases {
		conn, err := d.server.connect(ctx, d.name)
		if err != nil {
			closeAll()
			return client{}, nil, err
		}
		workers = append(workers, &worker{conn: conn, share: s, resources: s.resources(d.leases)})
	}
	opened, err := c.open(ctx, workers)
	if err != nil {
		closeAll()
		return client{}, nil, err
	}
	return opened, closeAll, nil
}
