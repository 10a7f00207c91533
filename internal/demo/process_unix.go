//go:build unix

package demo

import (
	"os"
	"syscall"
)

// Words for how a worker is made to stall.
const (
	stallIsTold  = false
	stallCall    = "SIGSTOP"
	continueCall = "SIGCONT"
)

// ownGroup puts a child into a process group of its own, which Ctrl-C in the terminal does not reach.
func ownGroup() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(attributes)
	return attributes
}

func stopProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
