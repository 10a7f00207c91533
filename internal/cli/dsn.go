package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

const (
	envDSN            = "FENCECTL_DSN"
	defaultConfigFile = "fencectl.yaml"
	maxFileSize       = 1 << 20
)

// namingVariables name a server. The environment comes before a file, but a PGPASSFILE or a PGUSER alone names
// no database: it completes the one in the file.
func namingVariables() []string { return []string{"PGSERVICE", "PGHOST"} }

// libpqVariables say where the database is, without any DSN.
func libpqVariables() []string {
	return []string{
		"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE",
	}
}

func newDatabaseTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "database",
		Short: "How the database is found",
		Long: `The database is the first of these that is given:

  1. --dsn DSN         a URL (postgres://user:password@host:port/database?sslmode=require) or key=value
                       (host=... user=... dbname=...). Other users of the machine can read it in the process list
  2. --dsn-file FILE   the same in a file; "-" reads standard input
  3. --config FILE     a file like 6, by another name
  4. FENCECTL_DSN      the same as --dsn in the environment
  5. PGSERVICE, PGHOST libpq's variables
  6. fencectl.yaml     in the working directory. Its one key is dsn; ${NAME} in it stands for an environment
                       variable, $${ for ${ itself:
                         dsn: host=db user=fence dbname=app password=${DB_PASSWORD}
  7. PGPORT, PGDATABASE, PGUSER, PGPASSWORD, PGPASSFILE or PGSERVICEFILE, with libpq's usual values for the rest

What a DSN leaves out comes from libpq's variables and from ~/.pgpass. In a URL, percent-encode the characters
: / ? # [ ] @ % of a password; in key=value form, put a password with blanks in '...', and \ before ' and \.

Connecting gives up after 10 seconds unless connect_timeout says otherwise, and application_name is fencectl
unless the DSN or PGAPPNAME says otherwise.`,
	}
}

// findDSN returns the connection string, and where it comes from.
func (a *app) findDSN() (dsn, source string, err error) {
	switch {
	case a.dsnGiven():
		if strings.TrimSpace(a.dsn) == "" {
			return "", "", usagef("--dsn is empty")
		}
		return a.dsn, "--dsn", nil
	case a.dsnFile != "":
		dsn, err := a.readDSNFile()
		return dsn, "--dsn-file", err
	case a.configFile != "":
		dsn, file, err := a.readConfig()
		if err == nil && dsn == "" {
			err = usagef("the configuration %s holds no dsn", filepath.Clean(file))
		}
		return dsn, file, err
	}
	if a.env[envDSN] != "" {
		return a.env[envDSN], envDSN, nil
	}
	if name := a.firstSet(namingVariables()); name != "" && a.configFile == "" {
		if _, err := os.Stat(defaultConfigFile); err == nil {
			a.note("%s is not used: %s is set", defaultConfigFile, name)
		}
		return "", name, nil
	}
	dsn, file, err := a.readConfig()
	if err != nil || dsn != "" {
		return dsn, file, err
	}
	if name := a.firstSet(libpqVariables()); name != "" {
		return "", name, nil
	}
	return "", "", &usageError{
		message: "no database given",
		hint:    `use --dsn, --dsn-file, FENCECTL_DSN, PGSERVICE, PGHOST or fencectl.yaml; see "fencectl help database"`,
	}
}

// firstSet returns the first of these variables that is set.
func (a *app) firstSet(names []string) string {
	for _, name := range names {
		if a.env[name] != "" {
			return name
		}
	}
	return ""
}

func (a *app) readDSNFile() (string, error) {
	content, err := a.readAll(a.dsnFile)
	if err != nil {
		return "", cannotRead("--dsn-file", err)
	}
	dsn := strings.TrimSpace(string(content))
	if dsn == "" {
		return "", usagef("read --dsn-file: %s is empty", nameOf(a.dsnFile))
	}
	return dsn, nil
}

// readAll reads a small file, or standard input for "-".
func (a *app) readAll(name string) ([]byte, error) {
	in := a.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", nameOf(name), maxFileSize)
	}
	return content, nil
}

func nameOf(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// readConfig returns the DSN of the configuration file, or nothing when there is no such file or no such key.
func (a *app) readConfig() (dsn, name string, err error) {
	name = a.configFile
	if name == "" {
		name = defaultConfigFile
	}
	content, err := a.readAll(name)
	if a.configFile == "" && errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", usagef("read the configuration: %v", err)
	}
	dsn, err = parseConfig(content)
	if err == nil {
		dsn, err = a.expand(dsn)
	}
	if err != nil {
		return "", "", usagef("read the configuration %s: %v", filepath.Clean(name), err)
	}
	return dsn, name, nil
}

// parseConfig reads the keys by hand: the library's own messages quote values, and the value is a secret.
func parseConfig(content []byte) (dsn string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		if at := regexp.MustCompile(`^yaml: (line \d+)`).FindStringSubmatch(err.Error()); at != nil {
			return "", fmt.Errorf("%s is not valid YAML", at[1])
		}
		return "", errors.New("it is not valid YAML")
	}
	if len(document.Content) == 0 {
		return "", nil // an empty file
	}
	keys := document.Content[0]
	if keys.Kind != yaml.MappingNode {
		return "", errors.New(`it must consist of "key: value" lines; the key for the database is dsn`)
	}
	for i := 0; i+1 < len(keys.Content); i += 2 {
		key, value := keys.Content[i], keys.Content[i+1]
		if key.Value != "dsn" {
			return "", fmt.Errorf("line %d: unknown key %q, known is dsn", key.Line, key.Value)
		}
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" || value.Value == "" {
			return "", fmt.Errorf("line %d: dsn must be a text", value.Line)
		}
		if dsn != "" {
			return "", fmt.Errorf("line %d: dsn stands there twice", key.Line)
		}
		dsn = value.Value
	}
	return dsn, nil
}

// expand replaces ${NAME} by the environment's value. An unset variable is an error: an empty password or
// host would connect somewhere else.
func (a *app) expand(text string) (string, error) {
	var missing string
	expanded := regexp.MustCompile(`\$?\$\{[^}]*\}?`).ReplaceAllStringFunc(text, func(match string) string {
		if literal, ok := strings.CutPrefix(match, "$$"); ok {
			return "$" + literal
		}
		name := strings.TrimSuffix(strings.TrimPrefix(match, "${"), "}")
		value, set := a.env[name]
		if !set && missing == "" {
			missing = name
		}
		return value
	})
	if missing != "" {
		return "", fmt.Errorf("the environment variable %s is not set", missing)
	}
	return expanded, nil
}
