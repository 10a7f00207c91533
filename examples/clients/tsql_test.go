package clients_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// throughTsql runs the script for sqlcmd with FreeTDS's tsql, for which the variable is filled in here.
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

// messagesOfTsql are those of PRINT, which tsql writes to the standard error, behind one about the database.
func messagesOfTsql(complaints string) string {
	first, rest, _ := strings.Cut(complaints, "\n")
	if strings.HasPrefix(first, "Changed database context") {
		return rest
	}
	return complaints
}
