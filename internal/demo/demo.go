package demo

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/procedures"
)

// storyTimeout bounds the story once its database is there. It takes about five seconds.
const storyTimeout = time.Minute

// Options of [Run].
type Options struct {
	// DSN is a database of the caller's, where the fence is installed. Empty: a throwaway one.
	DSN string
	// Worker is the program, with its first arguments, that runs [Serve] on its standard input and output.
	Worker []string
	// TellToStall tells workers to stall instead of stopping them, as is always done where they cannot be
	// stopped.
	TellToStall bool
	// Teller is told what happens.
	Teller Teller
	// SignIn makes connectors for SQL Server: see [client.Options]. Workers have their own.
	SignIn SignIn
	// Note is told, in lines for a person, what is being prepared and what stays behind.
	Note func(string)
}

// SignIn makes a connector for SQL Server out of a connection string; nil knows passwords only.
type SignIn = func(dsn string) (driver.Connector, error)

// Run plays the story and returns its steps, also those up to an error. It returns a [*Difference] when a step
// did not come out as it should. Neither processes nor folders are left when it returns.
func Run(ctx context.Context, options Options) (steps []Step, err error) {
	if options.DSN != "" {
		return runOn(ctx, options)
	}
	server, dsn, err := StartDatabase(ctx, devdb.Options{Settings: devdb.TestSettings()}, options.Note)
	if err != nil {
		return nil, err
	}
	defer func() { err = also(err, server.Stop(context.WithoutCancel(ctx)), options.Note) }()
	return play(ctx, options, dsn, newNames())
}

// runOn plays the story on a database of the caller's and cleans up.
func runOn(ctx context.Context, options Options) (steps []Step, err error) {
	names := newNames()
	session, err := connect(ctx, options.DSN, names.application(), options.SignIn)
	if err != nil {
		return nil, err
	}
	err = fit(ctx, session)
	closeSession(session)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*farewellTimeout)
		defer cancel()
		err = also(err, cleanUp(ctx, options, names), options.Note)
	}()
	return play(ctx, options, options.DSN, names)
}

// also adds what went wrong at the end: to an error that has another cause it is a note.
func also(err, last error, note func(string)) error {
	if err == nil || last == nil {
		return errors.Join(err, last)
	}
	note(last.Error())
	return err
}

// names makes the names of one demo. They all begin with it.
type names string

// newNames makes up names that nobody else has.
func newNames() names { return names("demo/" + strings.ToLower(rand.Text()[:10])) }

func (n names) of(what string) string { return string(n) + "/" + what }

func (n names) application() string { return "fencectl " + string(n) }

// Names of the resources. They say which scene it is.
const (
	resourceTakenOver = "taken-over"
	resourceLate      = "late"
	resourceFenced    = "fenced"
)

func (n names) resources() []string {
	return []string{n.of(resourceTakenOver), n.of(resourceLate), n.of(resourceFenced)}
}

// play starts the workers and goes through the scenes. The workers are gone when it returns.
func play(ctx context.Context, options Options, dsn string, names names) ([]Step, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storyTimeout, errors.New("the story took too long"))
	defer cancel()
	session, err := connect(ctx, dsn, names.application(), options.SignIn)
	if err != nil {
		return nil, err
	}
	defer closeSession(session)
	s := &story{
		names: names, session: session, teller: options.Teller, began: time.Now(),
		endsIdle: !client.IsSQLServer(dsn),
	}
	defer s.end()
	if s.a, err = hire(ctx, options, dsn, names, ActorA); err != nil {
		return nil, err
	}
	if s.b, err = hire(ctx, options, dsn, names, ActorB); err != nil {
		return nil, err
	}
	s.takenOver(ctx)
	s.late(ctx)
	s.fenced(ctx)
	s.counted(ctx)
	return s.steps, s.err
}

// hire starts a worker and connects it.
func hire(ctx context.Context, options Options, dsn string, names names, name string) (*worker, error) {
	w, err := startWorker(options.Worker, name, names.of(name))
	if err != nil {
		return nil, err
	}
	w.told = stallIsTold || options.TellToStall
	application := names.application() + "/" + name
	if _, err := w.call(ctx, command{Call: callConnect, DSN: dsn, Application: application}); err != nil {
		w.end()
		return nil, because(kindOf(err), "connect worker "+name, err)
	}
	return w, nil
}

// kindOf returns the kind of a failure in a worker or here.
func kindOf(err error) procedures.Kind {
	var call *callError
	var known *engine.Error
	switch {
	case errors.As(err, &call):
		return call.fault.Kind
	case errors.As(err, &known):
		return procedures.Kind(known.Kind)
	}
	return procedures.KindOther
}

// cleanUp takes the demo's rows out of a database of the caller's.
func cleanUp(ctx context.Context, options Options, names names) error {
	session, err := connect(ctx, options.DSN, names.application(), options.SignIn)
	if err == nil {
		defer closeSession(session)
		err = clean(ctx, session, names, options.Note)
	}
	if err != nil {
		return fmt.Errorf("clean up (rows of %s/ stay): %w", names, err)
	}
	return nil
}
