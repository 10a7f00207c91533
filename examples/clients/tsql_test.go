package clients_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// throughTsql runs the script for sqlcmd with tsql of FreeTDS, for which the variable is filled in here.
func throughTsql(ctx context.Context, dsn, resource string) (*exec.Cmd, error) {
	script, err := os.ReadFile("sqlserver.sql")
	if err != nil {
		return nil, err
	}
	parsed, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("the DSN is not a URL") // the error would show the password
	}
	word, _ := parsed.User.Password()
	command := exec.CommandContext(ctx, "tsql", "-H", parsed.Hostname(), "-p", parsed.Port(),
		"-D", parsed.Query().Get("database"), "-U", parsed.User.Username(), "-P", word, "-o", "q")
	command.Stdin = strings.NewReader(strings.ReplaceAll(string(script), "$(resource)", resource) + "\nGO\n")
	return command, nil
}
