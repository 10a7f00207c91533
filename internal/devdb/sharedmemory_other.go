//go:build !linux && !darwin

package devdb

// releaseSharedMemory does nothing: Windows frees a segment with its last user.
// On the BSDs the small segment of a killed server stays.
func releaseSharedMemory(string) {}
