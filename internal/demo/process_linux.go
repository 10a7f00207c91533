package demo

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// endWithParent makes the kernel kill the child, stopped or not, when this program ends in whatever way.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }

// isStopped reads /proc, because a container may have no ps.
func isStopped(pid int) (bool, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The state stands behind the program's name, which may contain anything.
	end := bytes.LastIndexByte(content, ')')
	if end < 0 || end+2 >= len(content) {
		return false, fmt.Errorf("/proc/%d/stat has no state", pid)
	}
	return content[end+2] == 'T', nil
}
