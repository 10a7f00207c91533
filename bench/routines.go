package main

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"time"
)

//go:embed postgres/*.sql
var handWrittenFiles embed.FS

// handWritten returns the SQL that a routine is measured against. Each file says in its head why it has the
// same effect, and what it leaves out.
func handWritten(name string) string {
	content, err := handWrittenFiles.ReadFile("postgres/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("read hand-written SQL: %v", err)) // the names and the files are one build
	}
	return string(content)
}

const (
	payloadBytes = 256
	contentType  = "application/json"
	ttlMS        = int64(30_000)
	// brieflyMS is the ttl of leases that the next round must be able to take over.
	brieflyMS = int64(1)
)

func payload() string { return `{"result": "` + strings.Repeat("x", payloadBytes) + `"}` }

// pair opens a client whose two sides differ in the statement only.
func pair(routine, byHand, outcome string, arguments func(w *worker) []any) func(context.Context, []*worker) (client, error) {
	return func(ctx context.Context, workers []*worker) (c client, err error) {
		w := workers[0]
		all := func() []any { return arguments(w) }
		if c[baseline].call, err = w.prepare(ctx, byHand, outcome, all); err != nil {
			return client{}, fmt.Errorf("hand-written: %w", err)
		}
		if c[measured].call, err = w.prepare(ctx, routine, outcome, all); err != nil {
			return client{}, fmt.Errorf("routine: %w", err)
		}
		return c, nil
	}
}

const publishCall = `SELECT * FROM fence.publish($1, $2, $3, $4, $5)`

func publishArguments() func(w *worker) []any {
	result := payload()
	return func(w *worker) []any { return []any{w.next(), owner, generation, result, contentType} }
}

func publish() comparison {
	return comparison{
		name: "publish",
		bars: map[int]float64{1: 0.80, 8: 0.90},
		open: pair(publishCall, handWritten("publish"), "accepted", publishArguments()),
	}
}

func publishWithKey() comparison {
	arguments := publishArguments()
	return comparison{
		name: "publish-key",
		open: pair(`SELECT * FROM fence.publish($1, $2, $3, $4, $5, $6)`, handWritten("publish_key"), "accepted",
			func(w *worker) []any { return append(arguments(w), fmt.Sprintf("build-%d", w.number())) }),
	}
}

func renew() comparison {
	return comparison{
		name: "renew",
		bars: map[int]float64{1: 0.80, 8: 0.90},
		open: pair(`SELECT * FROM fence.renew($1, $2, $3, $4)`, handWritten("renew"), "renewed",
			func(w *worker) []any { return []any{w.next(), owner, generation, ttlMS} }),
	}
}

const acquireCall = `SELECT * FROM fence.acquire($1, $2, $3, $4)`

func expired(ctx context.Context, d *database) error { return d.expire(ctx) }

func acquire() comparison {
	return comparison{
		name:    "acquire",
		bars:    map[int]float64{1: 0.80, 8: 0.85},
		prepare: expired,
		open: pair(acquireCall, handWritten("acquire"), "acquired",
			func(w *worker) []any { return []any{w.next(), owner, brieflyMS, nil} }),
	}
}

func acquireWithRequest() comparison {
	return comparison{
		name:    "acquire-request",
		prepare: expired,
		open: pair(acquireCall, handWritten("acquire"), "acquired",
			func(w *worker) []any { return []any{w.next(), owner, brieflyMS, w.uuid()} }),
	}
}

// acquireOfMany measures one statement in two databases.
func acquireOfMany() comparison {
	const many = 1_000_000
	return comparison{
		name:     "acquire-many",
		baseline: "1,000 leases",
		measured: "1,000,000 leases",
		bars:     map[int]float64{1: 1 / 1.2, 8: 1 / 1.2},
		leases:   []int{baseline: usualLeases, measured: many},
		prepare:  expired,
		open: func(ctx context.Context, workers []*worker) (c client, err error) {
			for side, w := range workers {
				c[side].call, err = w.prepare(ctx, acquireCall, "acquired",
					func() []any { return []any{w.next(), owner, brieflyMS, nil} })
				if err != nil {
					return client{}, err
				}
			}
			return c, nil
		},
	}
}

// refused measures a publish with a superseded token against an accepted one, both by the routine.
func refused(name string, token func(w *worker) int64) comparison {
	arguments := publishArguments()
	return comparison{
		name:     name,
		baseline: "accepted",
		measured: "refused",
		bars:     map[int]float64{8: 0.85},
		open: func(ctx context.Context, workers []*worker) (c client, err error) {
			w := workers[0]
			c[baseline].call, err = w.prepare(ctx, publishCall, "accepted", func() []any { return arguments(w) })
			if err != nil {
				return client{}, err
			}
			c[measured].call, err = w.prepare(ctx, publishCall, "rejected", func() []any {
				refusedArguments := arguments(w)
				refusedArguments[2] = token(w)
				return refusedArguments
			})
			return c, err
		},
	}
}

// refusedRepeatedly is the worker that loops on its refusal: repeats are counted in one row.
func refusedRepeatedly() comparison {
	return refused("refused-repeat", func(*worker) int64 { return generation - 1 })
}

// refusedFirst presents another token each time, so that every refusal is a new row.
func refusedFirst() comparison {
	return refused("refused-first", func(w *worker) int64 { return w.number() })
}

// release measures the release only: the acquisition before it is not timed.
func release() comparison {
	return comparison{
		name:    "release",
		prepare: expired,
		open: func(ctx context.Context, workers []*worker) (client, error) {
			w := workers[0]
			var resource string
			var token int64
			const sql = `SELECT generation FROM fence.acquire($1, $2, $3)`
			take := func(ctx context.Context) error {
				resource = w.next()
				return w.conn.QueryRow(ctx, sql, resource, owner, ttlMS).Scan(&token)
			}
			c, err := pair(`SELECT * FROM fence.release($1, $2, $3)`, handWritten("release"), "released",
				func(*worker) []any { return []any{resource, owner, token} })(ctx, workers)
			for side := range c {
				c[side].before = take
			}
			return c, err
		},
	}
}

// check measures check or require, in a transaction of its own.
func check(routine string) comparison {
	return comparison{
		name: routine,
		open: pair(`SELECT * FROM fence.`+routine+`($1, $2, $3)`, handWritten("check"), "ok",
			func(w *worker) []any { return []any{w.next(), owner, generation} }),
	}
}

func diagnose() comparison {
	return comparison{
		name: "diagnose",
		open: pair(`SELECT * FROM fence.diagnose($1, $2, $3, $4)`, handWritten("diagnose"), "superseded",
			func(w *worker) []any { return []any{w.next(), owner, generation - 1, time.Now()} }),
	}
}
