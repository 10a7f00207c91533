package cli

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/term"
)

// stoppable is a reader that ends with the command: a read from a terminal or a pipe may block for ever, and
// Ctrl-C and --timeout must not wait for it.
type stoppable struct {
	ctx  context.Context
	from io.Reader
}

// errStopped is what a read gets when the command ends first.
var errStopped = errors.New("the command ended while it read standard input")

// cannotRead is the usage error of a file that cannot be read; the end of the command is no such error.
func cannotRead(what string, err error) error {
	if errors.Is(err, errStopped) {
		return err
	}
	return usagef("read %s: %v", what, err)
}

// Read leaves the underlying read behind when the command ends first; what that read gets is lost.
func (s stoppable) Read(p []byte) (int, error) {
	type read struct {
		n   int
		err error
	}
	buffer, done := make([]byte, len(p)), make(chan read, 1)
	go func() {
		n, err := s.from.Read(buffer)
		done <- read{n, err}
	}()
	select {
	case <-s.ctx.Done():
		return 0, errStopped
	case r := <-done:
		return copy(p, buffer[:r.n]), r.err
	}
}

// typed tells whether a person types what is read.
func (s stoppable) typed() bool {
	file, ok := s.from.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
