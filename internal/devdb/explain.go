package devdb

import (
	"context"
	"fmt"
	"runtime"
	"strings"
)

// explain adds to the reason why there is no server what there is instead, and
// how to get one.
func (f *finder) explain(ctx context.Context, major string, reason error) error {
	wanted := "postgresql"
	if major != "" {
		wanted += " " + major
	}
	found, _ := f.installed(ctx)
	versions := make([]string, 0, len(found))
	for _, one := range found {
		versions = append(versions, one.Version)
	}
	other := ""
	if len(versions) > 0 {
		other = fmt.Sprintf(" (found %s)", strings.Join(versions, ", "))
	}
	return fmt.Errorf("find %s%s: %w\n%s", wanted, other, reason, advice(major))
}

// advice says how to get a server on this system.
func advice(major string) string {
	if major == "" {
		major = defaultMajor
	}
	install := "sudo apt install postgresql-" + major + "   (or: sudo dnf install postgresql" + major + "-server)"
	switch runtime.GOOS {
	case "darwin":
		install = "brew install postgresql@" + major
	case "windows":
		install = "choco install postgresql" + major
	}
	return "to get one, do one of these:\n" +
		"  install it:             " + install + "\n" +
		"  or unpack it anywhere:  set " + BinariesVariable + " to the folder that contains bin\n" +
		"  or start Docker\n" +
		"or use a server that you have: --dsn"
}
