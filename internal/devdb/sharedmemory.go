//go:build linux || darwin

package devdb

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseSharedMemory removes the small System V segment of a server that was
// killed. It would stay until the machine restarts, and macOS allows only a few.
// The seventh line of postmaster.pid has its key and number.
func releaseSharedMemory(dataDir string) {
	content, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	lines := strings.Split(string(content), "\n")
	if err != nil || len(lines) < 7 {
		return
	}
	fields := strings.Fields(lines[6])
	if len(fields) != 2 {
		return
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return
	}
	var segment unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err == nil && segment.Nattch == 0 {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
}
