package devdb

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Options choose and configure a server. The zero value starts the system's
// own PostgreSQL with PostgreSQL's own, durable settings.
type Options struct {
	// Version is a major version, "14" to "18". Empty takes the preferred
	// installation (see [Installed]).
	Version string

	// Settings are added to postgresql.conf, for instance [TestSettings].
	// The port, the addresses and the place of the log belong to this package.
	Settings map[string]string

	// Port to listen on; 0 chooses a free one.
	Port int

	// LocalOnly takes only binaries that are on this machine already: no
	// download, no container.
	LocalOnly bool
}

// TestSettings returns settings for servers whose data need not survive the
// machine: they do not wait for the disk, and log what tests look for (errors,
// lock waits, deadlocks). synchronous_commit stays on, so that a commit still
// means what it means in production; a crash of the server itself, as opposed
// to the machine, loses nothing. full_page_writes stays on too: [Server.Kill]
// can tear a page that is being written.
func TestSettings() map[string]string {
	return map[string]string{
		"fsync":                   "off",
		"max_connections":         "300",
		"shared_buffers":          "64MB",
		"log_min_messages":        "warning",
		"log_min_error_statement": "error",
		"log_lock_waits":          "on",
		"log_checkpoints":         "off",
	}
}

// reserved settings decide where the server is found and what it leaves behind.
func reserved(name string) bool {
	switch strings.ToLower(name) {
	case "port", "listen_addresses", "unix_socket_directories", "data_directory",
		"hba_file", "ident_file", "external_pid_file", "logging_collector", "log_destination":
		return true
	}
	return false
}

func (o Options) validate() error {
	if o.Version != "" && !regexp.MustCompile(`^[1-9][0-9]$`).MatchString(o.Version) {
		return fmt.Errorf("version %q is not a major version such as 17", o.Version)
	}
	if o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("port %d is out of range", o.Port)
	}
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	for key, value := range o.Settings {
		switch {
		case !name.MatchString(key):
			return fmt.Errorf("setting %q is not a name", key)
		case reserved(key):
			return fmt.Errorf("setting %q is chosen by the server's folder and port", key)
		case strings.ContainsAny(value, "\x00\r\n"):
			return fmt.Errorf("setting %q has a line break", key)
		}
	}
	return nil
}

// configuration is the content of the configuration file of a server that runs
// as a process: the caller's settings, then what this package decides.
func configuration(settings map[string]string, port int, socketDir string) string {
	var b strings.Builder
	write := func(key, value string) {
		value = strings.ReplaceAll(value, `\`, `\\`)
		value = strings.ReplaceAll(value, `'`, `''`)
		fmt.Fprintf(&b, "%s = '%s'\n", key, value)
	}
	write("log_line_prefix", "%m [%p] %q%u@%d ")
	write("wal_keep_size", "256MB") // for a standby that starts or was down
	if runtime.GOOS != "windows" {
		// In the data folder, so that a killed server leaves nothing in /dev/shm.
		write("dynamic_shared_memory_type", "mmap")
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		write(key, settings[key])
	}
	write("listen_addresses", "127.0.0.1")
	write("port", fmt.Sprint(port))
	write("unix_socket_directories", socketDir)
	write("log_destination", "stderr")
	write("logging_collector", "off")
	return b.String()
}
