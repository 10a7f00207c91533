//go:build unix && !linux

package demo

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent does nothing: only Linux has a parent-death signal.
func endWithParent(*syscall.SysProcAttr) {}

func isStopped(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("run ps: %w", err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), nil
}
