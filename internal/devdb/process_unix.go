//go:build unix

package devdb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// account is the user that runs the servers, where that is not the caller. A
// nil account is the caller's own.
type account struct {
	uid, gid int
}

// unprivileged returns the account that runs the servers of root.
func unprivileged() *account {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if uidErr == nil && gidErr == nil {
			return &account{uid: uid, gid: gid}
		}
	}
	return nil
}

// attributes put a child into a process group of its own, under the account.
func (a *account) attributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(attributes)
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attributes
}

// give makes the account the owner of a file.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// launchServer starts the server as a direct child: pg_ctl would put a process
// in between, and the server would outlive this one.
func (l *local) launchServer(cmd *exec.Cmd) (*process, error) { return launch(cmd) }

func (l *local) shutdown(fast bool) error {
	if fast {
		return syscall.Kill(l.proc.pid, syscall.SIGINT)
	}
	return syscall.Kill(l.proc.pid, syscall.SIGQUIT)
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// killTree kills a server and its children. Each child is a session of its own,
// out of reach of a signal to the group, and would end only when it notices that
// the server is gone. The server is stopped first so that it forks no more.
func killTree(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	family := childrenOf(pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for _, child := range family {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, child := range append(family, pid) {
		for alive(child) {
			if time.Now().After(deadline) {
				return fmt.Errorf("kill process %d: still there", child)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

func tryLockFile(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
