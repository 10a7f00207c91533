package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/entra"
	"github.com/fencectl/fencectl/internal/procedures"
)

const (
	// cancelPatience is how long an interrupted call waits for the server to say that it was cancelled. Then
	// the answer is certain: nothing was changed.
	cancelPatience = 2 * time.Second
	// tries of a call whose answer was lost.
	tries = 3
)

// database is the database that a command works on. It connects when it is first used, and again after the
// connection was lost.
type database struct {
	app     *app
	target  client.Target
	session client.Session
}

// withDatabase runs f on the database that the command line, the environment or the configuration names.
func (a *app) withDatabase(ctx context.Context, f func(db *database) error) error {
	_, target, err := a.findDatabase()
	if err != nil {
		return err
	}
	db := &database{app: a, target: target}
	defer db.close(ctx)
	return f(db)
}

// findDatabase returns the connection string that a command works with, and the database that it names.
func (a *app) findDatabase() (string, client.Target, error) {
	dsn, source, err := a.findDSN()
	if err != nil {
		return "", nil, err
	}
	target, err := client.Open(dsn, client.Options{CancelPatience: cancelPatience, SignIn: entra.Connector})
	var unusable *client.UnusableError
	if errors.As(err, &unusable) {
		return "", nil, &usageError{
			message: fmt.Sprintf("the DSN from %s %s", source, unusable.Reason),
			hint:    unusable.Hint + `; see "fencectl help database"`,
		}
	}
	if err != nil {
		return "", nil, err
	}
	a.trace("database %s (from %s)", target.Address(), source)
	return dsn, target, nil
}

func (d *database) connect(ctx context.Context) error {
	if d.session != nil {
		if !d.session.Lost() {
			return nil
		}
		d.close(ctx)
	}
	session, err := d.target.Connect(ctx)
	if err != nil {
		return err
	}
	d.session = session
	d.app.trace("connected to %s", session.Server())
	return nil
}

func (d *database) close(ctx context.Context) {
	if d.session == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer cancel()
	// The work is done and its outcome known: a failing farewell changes nothing.
	_ = d.session.Close(ctx)
	d.session = nil
}

// read runs a query or a routine that changes nothing.
func (d *database) read(ctx context.Context, f func(client.Session) error) error {
	err := d.connect(ctx)
	if err == nil {
		err = f(d.session)
	}
	if err != nil {
		return &callError{err: err, reading: true}
	}
	return nil
}

// write runs a routine in a transaction of its own. When the answer is lost, or the transaction met another
// one, it makes the same call again: the routines recognise a repeated call.
func (d *database) write(ctx context.Context, f func(procedures.Procedures) error) error {
	return d.writeWithin(ctx, 0, f)
}

// writeWithin is write with a bound for the wait for a row that another transaction holds; 0 is none but the
// command's own.
func (d *database) writeWithin(ctx context.Context, bound time.Duration, f func(procedures.Procedures) error) error {
	unknown := false
	for try := 1; ; try++ {
		err := d.try(ctx, bound, f)
		if err == nil {
			return nil
		}
		failure := procedures.Classify(err)
		unknown = unknown || failure.OutcomeUnknown()
		again := failure.OutcomeUnknown() || failure.Kind == procedures.KindRetry ||
			unknown && failure.Kind == procedures.KindCannotConnect
		if !again || try == tries || ctx.Err() != nil {
			return &callError{err: err, unknown: unknown}
		}
		d.app.note("%s; trying again", serverMessage(err))
		if sleep(ctx, time.Duration(try)*200*time.Millisecond+jitter()) != nil {
			return &callError{err: err, unknown: unknown}
		}
	}
}

// try makes the call once.
func (d *database) try(ctx context.Context, bound time.Duration, f func(procedures.Procedures) error) error {
	if err := d.connect(ctx); err != nil {
		return err
	}
	tx, err := d.session.Begin(ctx)
	if err != nil {
		return err
	}
	if err := inTransaction(ctx, tx, bound, f); err != nil {
		d.rollback(ctx, tx)
		return err
	}
	return tx.Commit(ctx)
}

func inTransaction(ctx context.Context, tx client.Transaction, bound time.Duration, f func(procedures.Procedures) error) error {
	if wait := lockWait(ctx, bound); wait > 0 {
		if err := tx.BoundLockWait(ctx, wait); err != nil {
			return err
		}
	}
	return f(tx.Procedures())
}

// rollback ends a failed transaction. It cannot fail in a way that matters: without it the server rolls back
// when the connection ends.
func (d *database) rollback(ctx context.Context, tx client.Transaction) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer cancel()
	tx.Rollback(ctx)
}

// lockWait is how long a call may wait for a row, 0 for any time: within the bound, and most of what is left of
// the command's time, so that the answer "busy" comes before the command's end would leave the outcome in doubt.
func lockWait(ctx context.Context, bound time.Duration) time.Duration {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return bound
	}
	left := max(time.Until(deadline)*8/10, time.Millisecond)
	if bound > 0 {
		left = min(left, bound)
	}
	return left
}

// jitter keeps callers who waited for the same thing from coming back at the same moment.
func jitter() time.Duration { return rand.N(50 * time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
