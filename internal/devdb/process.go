package devdb

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that runs until it is told to end.
type process struct {
	pid  int
	done chan struct{} // closed when the process has ended and was reaped
	err  error         // how it ended; to be read when done is closed
}

// launch starts a process. The goroutine that starts it keeps its operating
// system thread until the process has ended: Linux sends the parent-death
// signal when that thread ends, not when the program does.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run runs a command to its end. When ctx ends first, the command's whole
// process group is killed and reaped before run returns.
func run(ctx context.Context, cmd *exec.Cmd) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := launch(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		killGroup(p.pid)
		<-p.done
		return ctx.Err()
	}
}

// wait waits for the end of the process, at most as long as ctx and d allow,
// and tells whether it has ended.
func (p *process) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return p.ended()
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end asks the process to end with each of the signals in turn, and kills it
// and its children when none helps. A context that has ended cuts the first,
// polite wait short, not the rest: no process is ever left.
func (p *process) end(ctx context.Context, patience time.Duration, polite, firm func() error) error {
	if p.ended() {
		return nil
	}
	if err := polite(); err == nil && p.wait(ctx, patience) {
		return nil
	}
	if err := firm(); err == nil && p.wait(context.WithoutCancel(ctx), 5*time.Second) {
		return nil
	}
	return p.kill()
}

// kill ends the process and its children at once, and waits until they are gone.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	err := killTree(p.pid)
	<-p.done
	return err
}

// whileRunning returns a context that also ends when ended is closed.
func whileRunning(ctx context.Context, ended <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// signal fails on Windows, which has no signals.
func signal(pid int, s syscall.Signal) error {
	found, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return found.Signal(s)
}
