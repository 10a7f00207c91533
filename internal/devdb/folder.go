package devdb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	folderPrefix = "fencectl-pg-"
	ownerFile    = "owner"  // locked by the process that made the folder
	pidFile      = "pid"    // of the process that runs in the folder
	dockerFile   = "docker" // there when the server runs in a container of the folder's name
	logFile      = "server.log"
)

// folder holds everything that one server writes.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder that account can write to and marks it as ours.
func newFolder(account *account) (*folder, error) {
	path, err := os.MkdirTemp(os.TempDir(), fmt.Sprintf("%s%d-*", folderPrefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	f := &folder{path: path}
	if err := f.own(account); err != nil {
		return nil, errors.Join(fmt.Errorf("own folder: %w", err), f.remove())
	}
	return f, nil
}

// own takes the lock before it writes into the owner file: a sweep that comes
// in between sees an empty file and leaves the folder alone.
func (f *folder) own(account *account) error {
	lock, err := os.OpenFile(f.join(ownerFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	f.lock = lock
	if err := lockFile(lock); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return err
	}
	return account.give(f.path)
}

func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder. It tries for a while, because on Windows a file
// cannot be removed while a process that is ending still holds it open, and
// elsewhere a process that was just killed may have written one more file.
func (f *folder) remove() error {
	if f.lock != nil {
		f.lock.Close() // only after this can Windows remove the owner file
		f.lock = nil
	}
	return removeFolder(f.path)
}

func removeFolder(path string) error {
	var err error
	for range 100 {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("remove folder: %w", err)
}

// writeFor writes a file that only account can read.
func (f *folder) writeFor(account *account, name, content string) (string, error) {
	path := f.join(name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, account.give(path)
}

// notePid records which process runs in the folder, for a later sweep.
func (f *folder) notePid(pid int) error {
	return os.WriteFile(f.join(pidFile), []byte(strconv.Itoa(pid)), 0o600)
}

// sweep removes what processes left behind that are gone. It says nothing
// about folders that it cannot remove, which may belong to another user.
func sweep() {
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, path := range paths {
		if abandoned(path) {
			endLeftover(path)
			_ = removeFolder(path)
		}
	}
}

// abandoned tells whether the folder is one of ours whose owner is gone.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	owner, err := os.OpenFile(filepath.Join(path, ownerFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer owner.Close()
	if !tryLockFile(owner) {
		return false
	}
	content, err := io.ReadAll(owner)
	return err == nil && len(content) > 0
}

// endLeftover ends the process that runs in an abandoned folder, if it still
// does: the process must name the folder on its command line, because its
// number may belong to another one by now.
func endLeftover(path string) {
	endLeftoverContainer(path)
	content, err := os.ReadFile(filepath.Join(path, pidFile))
	if err == nil {
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err == nil && pid > 1 && strings.Contains(commandLine(pid), path+string(filepath.Separator)) {
			_ = killTree(pid)
		}
	}
	releaseSharedMemory(filepath.Join(path, "data"))
}

// endLeftoverContainer removes the container of an abandoned folder.
func endLeftoverContainer(path string) {
	if _, err := os.Stat(filepath.Join(path, dockerFile)); err != nil {
		return
	}
	if docker, err := exec.LookPath("docker"); err == nil {
		_ = removeContainer(docker, filepath.Base(path))
	}
}
