package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// forgetDatabase keeps what the environment and the configuration say about a database out of a command that
// starts its own, and says so.
func (a *app) forgetDatabase(why string) {
	var ignored []string
	for _, name := range append([]string{envDSN}, libpqVariables()...) {
		if a.env[name] != "" {
			ignored = append(ignored, name)
		}
	}
	file := a.configFile
	if file == "" {
		file = defaultConfigFile
	}
	if _, err := os.Stat(file); err == nil {
		ignored = append(ignored, file)
	}
	if len(ignored) > 0 {
		a.note("ignored: %s; %s", strings.Join(ignored, ", "), why)
	}
	// The driver reads them for whatever a DSN leaves out: a PGSERVICE that is not there would be an error.
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name)
		}
	}
}

// untilHangup ends the context when the terminal is closed, so that commands which have something to clean up
// get to it. Nor does a reader of standard output who leaves early end the program: the write fails instead.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	if signal.Ignored(syscall.SIGHUP) { // nohup
		return ctx, func() { signal.Stop(broken) }
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	return ctx, func() {
		stop()
		signal.Stop(broken)
	}
}

// endedByHangup marks an error that the end of the context of untilHangup explains, where its parent has not
// ended.
func endedByHangup(ctx, parent context.Context, err error) error {
	if ctx.Err() == nil || parent.Err() != nil {
		return err
	}
	return &ended{error: err, cause: context.Canceled}
}
