package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// worker is one connection, and the resources that it alone works on.
type worker struct {
	conn      *pgx.Conn
	share     share
	resources []string
	turn      int // of the resources
	given     int // numbers so far
}

// next returns the resource whose turn it is.
func (w *worker) next() string {
	resource := w.resources[w.turn%len(w.resources)]
	w.turn++
	return resource
}

// number returns one that no other call of any client gets.
func (w *worker) number() int64 {
	w.given++
	return int64(w.given)*maxClients + int64(w.share.client)
}

// uuid returns a random one.
func (w *worker) uuid() (id [16]byte) {
	rand.Read(id[:]) // never fails
	return id
}

// prepare returns a call of a prepared statement: one round trip, in a transaction of its own. Its answer
// must be one row that begins with the outcome that is expected: what is fast because it does nothing is an
// error.
func (w *worker) prepare(
	ctx context.Context, sql, outcome string, arguments func() []any,
) (func(context.Context) error, error) {
	name := fmt.Sprintf("statement_%d", w.number())
	if _, err := w.conn.Prepare(ctx, name, sql); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return func(ctx context.Context) error {
		got, err := w.first(ctx, name, arguments()...)
		if err == nil && got != outcome {
			err = fmt.Errorf("outcome %q, expected %q", got, outcome)
		}
		return err
	}, nil
}

// first returns the first column of the only row, and reads the others as they came over the wire: what a
// driver makes of them is not what is measured.
func (w *worker) first(ctx context.Context, name string, arguments ...any) (string, error) {
	rows, err := w.conn.Query(ctx, name, arguments...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	value, count := "none", 0
	for rows.Next() {
		value = string(rows.RawValues()[0])
		count++
	}
	if rows.Err() == nil && count > 1 {
		return "", fmt.Errorf("%d rows, expected one", count)
	}
	return value, rows.Err()
}
