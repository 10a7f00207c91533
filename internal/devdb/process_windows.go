package devdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// account exists for the other systems. On Windows initdb and pg_ctl give up
// an administrator's rights themselves.
type account struct{}

func unprivileged() *account { return nil }

// attributes put a child into a process group of its own, which Ctrl-C in the
// console does not reach.
func (a *account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func (a *account) give(string) error { return nil }

// launchServer starts the server with pg_ctl: the server refuses to run with an
// administrator's rights, and pg_ctl is the program that can drop them.
func (l *local) launchServer(cmd *exec.Cmd) (*process, error) {
	start := exec.Command(l.installation.program("pg_ctl"), "start", "-w", "-D", l.dataDir(), "-l", l.logPath())
	start.Env, start.Dir, start.SysProcAttr = cmd.Env, cmd.Dir, cmd.SysProcAttr
	if err := start.Run(); err != nil {
		return nil, fmt.Errorf("run pg_ctl: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(l.dataDir(), "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return nil, fmt.Errorf("read postmaster.pid: %w", err)
	}
	return attach(pid)
}

// attach watches a process that is not a child.
func attach(pid int) (*process, error) {
	found, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, done: make(chan struct{})}
	go func() {
		_, p.err = found.Wait()
		close(p.done)
	}()
	return p, nil
}

func (l *local) shutdown(fast bool) error {
	mode := "immediate"
	if fast {
		mode = "fast"
	}
	return exec.Command(l.installation.program("pg_ctl"), "stop", "-W", "-m", mode, "-D", l.dataDir()).Run()
}

func killGroup(pid int) { _ = killTree(pid) }

func killTree(pid int) error {
	out, err := exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kill process %d: %w: %s", pid, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// commandLine is unknown: leftover servers are not ended on Windows, and keep
// their folders, whose files they hold open.
func commandLine(int) string { return "" }

func lockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

func tryLockFile(f *os.File) bool {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)) == nil
}
