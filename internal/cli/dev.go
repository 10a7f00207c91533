package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencectl/fencectl/internal/demo"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/spf13/cobra"
)

// devAnswer is the first line of dev.
type devAnswer struct {
	DSN     string `json:"dsn"`
	Port    int    `json:"port"`
	Version string `json:"version"`
}

func newDevCommand(a *app) *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:     "dev",
		GroupID: groupTry,
		Short:   "Keep a throwaway database with the fence in it running",
		Long: `Starts a throwaway PostgreSQL on 127.0.0.1, installs the fence in it, and keeps it running until Ctrl-C (or
SIGTERM), which is how it ends well: exit code 0, and nothing is left of it.

The first line on standard output is its DSN, password included: it is written when the database is ready, so
whoever reads it may connect. --timeout bounds the start.`,
		Example: `  fencectl dev
  fencectl dev --port 5544
  fencectl dev -o json | jq -r .dsn`,
		Args: atMost(0),
	}
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1 (default: a free one)")
	cmd.RunE = a.runWithin(unbounded, func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		return a.dev(ctx, cmd.Context(), port)
	})
	return cmd
}

// dev starts the server before start ends, and keeps it until ctx does.
func (a *app) dev(start, ctx context.Context, port int) (err error) {
	if a.dsnGiven() || a.dsnFile != "" {
		return usagef("dev starts a database of its own and takes none")
	}
	if port < 0 || port > 65535 {
		return usagef("--port %d is out of range", port)
	}
	a.forgetDatabase("dev starts a database of its own")
	starting, stopStart := untilHangup(start)
	defer stopStart()
	ctx, stop := untilHangup(ctx)
	defer stop()
	server, dsn, err := demo.StartDatabase(starting, devdb.Options{Port: port}, func(text string) { a.note("%s", text) })
	if err != nil {
		return endedByHangup(starting, start, err)
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()
	if err := a.presentServer(server, dsn); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		a.note("stopping %s", server)
		return nil
	case <-server.Ended():
		return errors.New("the server ended by itself")
	}
}

// presentServer says how to reach the server. The password is meant to be read: nobody else can connect from
// elsewhere, and the database is gone when this command ends.
func (a *app) presentServer(server *devdb.Server, dsn string) error {
	if a.output.isJSON() {
		return a.printJSON(devAnswer{DSN: dsn, Port: server.Port(), Version: server.Version()})
	}
	if _, err := fmt.Fprintln(a.stdout, dsn); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	a.note("ready: %s, until Ctrl-C. In another terminal:", server)
	fmt.Fprintf(a.stderr, "\n  export %s='%s'\n  fencectl leases\n  psql \"$%s\"\n\n", envDSN, dsn, envDSN)
	return nil
}
