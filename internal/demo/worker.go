package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const (
	// callTimeout bounds each wait for a worker: longer than any lock wait of the routines.
	callTimeout = 20 * time.Second
	// endTimeout is how long a worker may take to end by itself.
	endTimeout = 2 * time.Second
)

// worker is a worker process as the story sees it.
type worker struct {
	name    string // "A"
	owner   string // its name in the database
	process *os.Process
	in      io.WriteCloser
	replies chan reply
	done    chan struct{} // closed when the process has ended and was reaped
	err     error         // how it ended; to be read when done is closed
	stderr  *tail
	told    bool // it stalls when told, instead of being stopped
	stopped bool
}

// startWorker starts a process that runs [Serve]. Its arguments say whose it is to those who look at the list
// of processes.
func startWorker(program []string, name, owner string) (*worker, error) {
	cmd := exec.Command(program[0], append(program[1:len(program):len(program)], owner)...)
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = endTimeout
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	out, answers := io.Pipe()
	w := &worker{
		name: name, owner: owner, in: in, stderr: &tail{},
		replies: make(chan reply, 16), done: make(chan struct{}),
	}
	cmd.Stdout, cmd.Stderr = answers, w.stderr
	if err := w.launch(cmd, answers); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	go w.listen(out)
	return w, nil
}

// launch starts the process from a thread that lives as long as the process does: Linux sends the parent-death
// signal when that thread ends, not when the program does.
func (w *worker) launch(cmd *exec.Cmd, answers io.Closer) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		w.process = cmd.Process
		started <- err
		if err == nil {
			w.err = cmd.Wait()
			close(w.done)
		}
		answers.Close()
	}()
	return <-started
}

// listen hands on the answers until the process has ended.
func (w *worker) listen(out io.Reader) {
	defer close(w.replies)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			r.Fault = newFault(fmt.Errorf("read the answer: %w", err))
		}
		select {
		case w.replies <- r:
		case <-w.done:
			return
		}
	}
	// Whatever else it says, it must not block on it.
	_, _ = io.Copy(io.Discard, out)
}

// send writes a command into the worker's queue. It does not wait for the worker to read it.
func (w *worker) send(c command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return w.lost(err)
	}
	return nil
}

// answer waits for the answer to the oldest command that has none yet.
func (w *worker) answer(ctx context.Context, call string) (reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errors.New("it takes too long"))
	defer cancel()
	select {
	case r, ok := <-w.replies:
		if !ok {
			return reply{}, w.lost(errors.New("no answer to " + call))
		}
		if r.Fault != nil {
			return reply{}, &callError{worker: w.name, fault: *r.Fault}
		}
		return r, nil
	case <-ctx.Done():
		return reply{}, fmt.Errorf("worker %s: wait for the answer to %s: %w", w.name, call, context.Cause(ctx))
	}
}

func (w *worker) call(ctx context.Context, c command) (reply, error) {
	if err := w.send(c); err != nil {
		return reply{}, err
	}
	return w.answer(ctx, c.Call)
}

// lost explains an error by the end of the process, where it has ended.
func (w *worker) lost(err error) error {
	select {
	case <-w.done:
		return fmt.Errorf("worker %s ended (%v): %w%s", w.name, w.err, err, w.stderr.quoted())
	case <-time.After(endTimeout):
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
}

// stall stops the worker and makes sure that it really stands still.
func (w *worker) stall(ctx context.Context) error {
	if w.told {
		_, err := w.call(ctx, command{Call: callStall})
		w.stopped = err == nil
		return err
	}
	if err := stopProcess(w.process); err != nil {
		return fmt.Errorf("stop worker %s: %w", w.name, err)
	}
	w.stopped = true
	return w.awaitStopped(ctx, true)
}

// proceed lets a stalled worker go on.
func (w *worker) proceed(ctx context.Context) error {
	if w.told {
		w.stopped = false
		if err := w.send(command{Call: callContinue}); err != nil {
			return err
		}
		_, err := w.answer(ctx, callContinue)
		return err
	}
	if err := continueProcess(w.process); err != nil {
		return fmt.Errorf("continue worker %s: %w", w.name, err)
	}
	w.stopped = false
	return w.awaitStopped(ctx, false)
}

// awaitStopped waits until the system says that the process is stopped, or that it is not.
func (w *worker) awaitStopped(ctx context.Context, want bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errors.New("it takes too long"))
	defer cancel()
	return poll(ctx, 2*time.Millisecond, func() (bool, error) {
		stopped, err := isStopped(w.process.Pid)
		if err != nil {
			err = fmt.Errorf("look at the state of worker %s: %w", w.name, err)
		}
		return stopped == want, err
	})
}

// end ends the worker and waits until it is gone. One that runs ends by itself when its input does, and cancels
// what it was doing. A stopped one is killed as it is: continued, it would first do what waits in its queue.
func (w *worker) end() {
	w.in.Close()
	if !w.stopped || w.told {
		select {
		case <-w.done:
			return
		case <-time.After(endTimeout):
		}
	}
	// It fails only for a process that has ended meanwhile.
	_ = w.process.Kill()
	<-w.done
}

// callError is a call that failed, as opposed to one that was refused.
type callError struct {
	worker string
	fault  fault
}

func (e *callError) Error() string {
	return fmt.Sprintf("call of worker %s: %s", e.worker, e.fault.Message)
}

// tail keeps the last of what a worker writes to standard error.
type tail struct{ text []byte }

const tailSize = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

// quoted is to be called when the process has ended.
func (t *tail) quoted() string {
	text := strings.TrimSpace(string(bytes.ToValidUTF8(t.text, nil)))
	if text == "" {
		return ""
	}
	return "; it said: " + text
}
