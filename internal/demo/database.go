package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/client"
	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/procedures"
)

const (
	// farewellTimeout bounds what is done after the caller's context has ended.
	farewellTimeout = 10 * time.Second
	// cancelPatience is how long a call whose context has ended waits for the server to say so: less than
	// endTimeout, or a worker would be killed meanwhile.
	cancelPatience = time.Second
)

// StartDatabase starts a throwaway PostgreSQL and installs the fence in it. note is told what is being done. The
// caller stops the server; an error leaves nothing behind.
func StartDatabase(ctx context.Context, options devdb.Options, note func(string)) (server *devdb.Server, dsn string, err error) {
	note("starting a throwaway PostgreSQL")
	server, err = devdb.StartPostgres(ctx, options)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Stop(context.WithoutCancel(ctx)))
		}
	}()
	dsn = server.DSN("postgres")
	note("installing the fence in " + server.String())
	target, err := engine.Open(dsn, engine.Options{})
	if err != nil {
		return nil, "", err
	}
	_, err = deploy.New(target).Migrate(ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	return server, dsn, err
}

// target reads a connection string.
func target(dsn, application string, signIn SignIn) (client.Target, error) {
	return client.Open(dsn, client.Options{
		Application: application,
		// When the context ends, the server is asked to cancel: a call that it went on with would change things
		// after the clean-up.
		CancelPatience: cancelPatience,
		SignIn:         signIn,
	})
}

func connect(ctx context.Context, dsn, application string, signIn SignIn) (client.Session, error) {
	database, err := target(dsn, application, signIn)
	if err != nil {
		return nil, err
	}
	session, err := database.Connect(ctx)
	if err != nil {
		return nil, failed("connect", err)
	}
	return session, nil
}

func closeSession(session client.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	defer cancel()
	// A failing farewell changes nothing.
	_ = session.Close(ctx)
}

// failed says what was being done when a query failed.
func failed(doing string, err error) error {
	return because(procedures.Classify(err).Kind, doing, err)
}

// because gives an error the kind that the command line chooses its exit code by, where it is one of those that
// tell a person what to do.
func because(kind procedures.Kind, doing string, err error) error {
	switch kind {
	case procedures.KindNotInstalled, procedures.KindNotPermitted, procedures.KindCannotConnect:
		return &engine.Error{Kind: engine.Kind(kind), Message: doing, Err: err}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// fit checks, before anything is written, that the fence is installed and that this login may play the story.
func fit(ctx context.Context, session client.Session) error {
	installed, err := client.Installed(ctx, session)
	if err != nil {
		return failed("look for the fence", err)
	}
	if !installed {
		return &engine.Error{
			Kind:    engine.KindNotInstalled,
			Message: fmt.Sprintf("the fence is not installed in database %q, and demo does not install it", session.Database()),
			Hint:    `run "fencectl migrate" on that database first, or run demo without --dsn: it then starts a database of its own`,
		}
	}
	lacking, err := client.Lacking(ctx, session, needed()...)
	if err != nil {
		return failed("look for the rights that the story needs", err)
	}
	if len(lacking) > 0 {
		names := make([]string, len(lacking))
		for i, right := range lacking {
			names[i] = "fence." + right.Object
		}
		return &engine.Error{
			Kind:    engine.KindNotPermitted,
			Message: fmt.Sprintf("user %q has no right on %s", session.User(), strings.Join(names, ", ")),
			Hint:    "grant it the roles fence_worker and fence_reader, and fence_operator to let demo clean up",
		}
	}
	return nil
}

// needed are the rights without which the story cannot be played.
func needed() []client.Right {
	var rights []client.Right
	for _, routine := range []string{"acquire", "check", "publish", "release", "renew"} {
		rights = append(rights, client.Right{Object: routine, Privilege: client.MayExecute})
	}
	for _, view := range []string{"lease_status", "publications", "rejections"} {
		rights = append(rights, client.Right{Object: view, Privilege: client.MaySelect})
	}
	return rights
}

// poll asks again and again until the answer is yes.
func poll(ctx context.Context, pause time.Duration, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
