//go:build unix && !linux

package devdb

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent does nothing: only Linux has a parent-death signal.
func endWithParent(*syscall.SysProcAttr) {}

func childrenOf(pid int) []int {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	var children []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(fields[0]); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// alive tells whether the process runs; one that nobody has reaped yet does not.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	state := strings.TrimSpace(string(out))
	return err == nil && state != "" && !strings.HasPrefix(state, "Z")
}

func commandLine(pid int) string {
	out, _ := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return string(out)
}
