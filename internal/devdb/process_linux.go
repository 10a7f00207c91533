package devdb

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent makes the kernel shut the child down at once when this program
// is killed. It survives the change of user: the runtime sets it afterwards.
func endWithParent(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig = syscall.SIGQUIT
}

// childrenOf reads /proc, because a container may have no ps.
func childrenOf(pid int) []int {
	entries, _ := os.ReadDir("/proc")
	var children []int
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if fields := stat(child); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			children = append(children, child)
		}
	}
	return children
}

// alive tells whether the process runs; one that nobody has reaped yet does not.
func alive(pid int) bool {
	fields := stat(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// stat returns the fields of /proc/<pid>/stat from the state on: those before
// it may contain blanks.
func stat(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(content, ')')
	if err != nil || end < 0 {
		return nil
	}
	return strings.Fields(string(content[end+1:]))
}

func commandLine(pid int) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(content, []byte{0}, []byte{' '}))
}
