// Command fencectl deploys the fence to a database, and calls its procedures from a shell.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencectl/fencectl/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		// The first signal ends the work in good order. With the handler gone, the second one kills.
		stop()
	}()
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
