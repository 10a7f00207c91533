package demo

import "os"

// exists tells whether there is such a process.
func exists(pid int) bool {
	_, err := os.FindProcess(pid)
	return err == nil
}
