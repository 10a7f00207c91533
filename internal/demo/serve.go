package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/procedures"
)

// Serve is the worker's side: it makes the calls that it reads from in and writes the answers to out, until in
// ends or ctx does.
func Serve(ctx context.Context, in io.Reader, out io.Writer, signIn SignIn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &servant{out: json.NewEncoder(out), proceed: make(chan struct{}, 1), signIn: signIn}
	defer w.close()
	// More than the story ever queues: the reader must get to "continue" and to the end of in.
	commands := make(chan command, 16)
	broken := make(chan error, 1)
	go func() {
		broken <- w.read(ctx, in, commands)
		cancel()
	}()
	for {
		select {
		case c := <-commands:
			if err := w.answer(ctx, c); err != nil {
				return err
			}
		case <-ctx.Done():
			select {
			case err := <-broken:
				return err
			default:
				return context.Cause(ctx)
			}
		}
	}
}

// servant is a worker as it sees itself.
type servant struct {
	out     *json.Encoder
	proceed chan struct{}
	signIn  SignIn
	target  client.Target
	session client.Session
	tx      client.Transaction // the open one, or nil
}

// read hands on the commands. What ends a stall overtakes what waits behind it.
func (w *servant) read(ctx context.Context, in io.Reader, commands chan<- command) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("read a command: %w", err)
		}
		if c.Call == callContinue {
			w.proceed <- struct{}{}
			continue
		}
		select {
		case commands <- c:
		case <-ctx.Done():
			return nil
		}
	}
	return lines.Err()
}

func (w *servant) answer(ctx context.Context, c command) error {
	began := time.Now()
	r, err := w.perform(ctx, c)
	if ctx.Err() != nil {
		return nil // nobody is there to hear it
	}
	r.TookMS = time.Since(began).Milliseconds()
	if err != nil {
		r.Fault = newFault(err)
	}
	if err := w.out.Encode(r); err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}

func (w *servant) perform(ctx context.Context, c command) (reply, error) {
	switch c.Call {
	case callConnect:
		database, err := target(c.DSN, c.Application, w.signIn)
		if err != nil {
			return reply{}, err
		}
		w.target = database
		return reply{Outcome: outcomeConnected}, w.connect(ctx)
	case callStall:
		return w.stall(ctx)
	case callCommit:
		return w.commit(ctx)
	}
	if err := w.connect(ctx); err != nil {
		return reply{}, err
	}
	if c.Call == callBegin {
		tx, err := w.session.Begin(ctx)
		w.tx = tx
		return reply{Outcome: outcomeBegun}, err
	}
	return w.routine(ctx, c)
}

// routine calls one of the routines, in the open transaction if there is one.
func (w *servant) routine(ctx context.Context, c command) (reply, error) {
	procs := w.session.Procedures()
	if w.tx != nil {
		procs = w.tx.Procedures()
	}
	switch c.Call {
	case callAcquire:
		r, err := procs.Acquire(ctx, procedures.AcquireParams{Resource: c.Resource, Owner: c.Owner, TTLMS: c.TTLMS})
		return reply{Outcome: r.Outcome, Generation: r.Generation}, err
	case callRenew:
		r, err := procs.Renew(ctx, c.token(), c.TTLMS)
		return reply{
			Outcome: r.Outcome, Reason: r.Reason, Generation: &c.Generation, ObservedGeneration: r.ObservedGeneration,
		}, err
	case callPublish:
		r, err := procs.Publish(ctx, procedures.PublishParams{Token: c.token(), Payload: c.Payload, Policy: c.Policy})
		return reply{
			Outcome: r.Outcome, Reason: r.Reason, Generation: &c.Generation, Revision: r.Revision, LateMS: r.LateMS,
			ObservedGeneration: r.ObservedGeneration,
		}, err
	case callCheck:
		r, err := procs.Check(ctx, c.token(), c.Policy)
		return reply{
			Outcome: r.Outcome, Reason: r.Reason, Generation: &c.Generation, LateMS: r.LateMS,
			ObservedGeneration: r.ObservedGeneration,
		}, err
	}
	return reply{}, fmt.Errorf("call %q: there is no such call", c.Call)
}

// commit ends the transaction. A session that the server has ended is an outcome: the transaction is rolled back.
// Which error tells so depends on what of the server's farewell the system still delivers.
func (w *servant) commit(ctx context.Context) (reply, error) {
	if w.tx == nil {
		return reply{}, errors.New("commit: no transaction is open")
	}
	err := w.tx.Commit(ctx)
	w.tx = nil
	if err == nil {
		return reply{Outcome: outcomeCommitted}, nil
	}
	if !w.session.Lost() {
		return reply{}, err
	}
	r := reply{Outcome: outcomeFailed}
	if state := procedures.Classify(err).SQLState; state != "" {
		r.Reason = &state
	}
	return r, nil
}

// stall does nothing until it is told to continue, as a stopped process would.
func (w *servant) stall(ctx context.Context) (reply, error) {
	if err := w.out.Encode(reply{Outcome: outcomeStalled}); err != nil {
		return reply{}, err
	}
	select {
	case <-w.proceed:
		return reply{Outcome: callContinue}, nil
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// connect connects, the first time and after the server has ended the session.
func (w *servant) connect(ctx context.Context) error {
	if w.target == nil {
		return errors.New("connect: no database was named")
	}
	if w.session != nil && !w.session.Lost() {
		return nil
	}
	w.close()
	session, err := w.target.Connect(ctx)
	if err != nil {
		return err
	}
	w.session = session
	return nil
}

func (w *servant) close() {
	if w.session != nil {
		closeSession(w.session)
	}
	w.session, w.tx = nil, nil
}
