package demo

import (
	"errors"
	"os"
	"syscall"
)

// Words for how a worker is made to stall: Windows has no SIGSTOP.
const (
	stallIsTold  = true
	stallCall    = callStall
	continueCall = callContinue
)

// ownGroup puts a child into a process group of its own, which Ctrl-C in the console does not reach.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func stopProcess(*os.Process) error { return errors.ErrUnsupported }

func continueProcess(*os.Process) error { return errors.ErrUnsupported }

func isStopped(int) (bool, error) { return false, errors.ErrUnsupported }
