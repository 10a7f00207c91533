//go:build unix

package demo

import "syscall"

// exists tells whether there is such a process. Ours are reaped, so no dead one counts.
func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }
