package engine

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/microsoft/go-mssqldb/msdsn"
)

// hidden stands for a password where a connection string is shown.
const hidden = "xxxxx"

// Open reads a connection string and returns its engine, without connecting. postgres:// and postgresql:// URLs
// and key=value strings are PostgreSQL's, and so is an empty one (PGHOST, PGSERVICE and so on); sqlserver:// and
// mssql:// URLs are SQL Server's. An error never contains a password.
func Open(dsn string, options Options) (Engine, error) {
	dsn = strings.TrimSpace(dsn)
	scheme, _, isURL := strings.Cut(dsn, "://")
	switch {
	case isURL && (strings.EqualFold(scheme, "sqlserver") || strings.EqualFold(scheme, "mssql")):
		return openMSSQL(dsn, options)
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
	case dsn == "" || keyValue.MatchString(dsn):
		isURL = false
	default:
		return nil, &Error{
			Kind:    KindUsage,
			Message: "the connection string is neither a postgres:// or sqlserver:// URL nor a list of key=value",
			Hint:    "for instance postgres://user@host:5432/database, sqlserver://user@host?database=…, or: host=… user=… dbname=…",
		}
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, parseError(dsn, isURL, err)
	}
	return newPostgres(config, options), nil
}

// openMSSQL reads a sqlserver:// or mssql:// URL.
func openMSSQL(dsn string, options Options) (Engine, error) {
	_, rest, _ := strings.Cut(dsn, "://")
	dsn = "sqlserver://" + rest
	config, err := msdsn.Parse(dsn)
	if err != nil {
		// Its text quotes pieces of the string, and any piece of a broken one may be the password.
		return nil, &Error{
			Kind: KindUsage, Message: "read the connection string", Err: errors.New("it is not a valid sqlserver:// URL"),
			Hint: "for instance sqlserver://user:password@host:1433?database=app&encrypt=true; characters such as @ : / ? # % of a password must be percent-encoded",
		}
	}
	name := options.ApplicationName
	if name == "" && config.Parameters[msdsn.AppName] == "" {
		name = "fencectl"
	}
	if name != "" {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + url.Values{msdsn.AppName: {name}}.Encode()
	}
	opened, err := newMSSQL(dsn, options)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// keyValue is the beginning of a libpq key=value string.
var keyValue = regexp.MustCompile(`^[A-Za-z_]+\s*=`)

// parseError explains why a connection string cannot be read. The parser's own error quotes pieces of it, and
// in a string that cannot be parsed any piece may be the password; only causes below that are passed on.
func parseError(dsn string, isURL bool, err error) error {
	known := &Error{Kind: KindUsage, Message: "read the connection string"}
	if _, broken := url.Parse(dsn); isURL && broken != nil {
		known.Err = errors.New("it is not a valid URL")
		known.Hint = "in a user name or password, characters such as @ : / ? # % must be percent-encoded"
		return known
	}
	cause := errors.Unwrap(err)
	if cause == nil {
		known.Err = errors.New("it is not a valid PostgreSQL connection string")
		return known
	}
	text := cause.Error()
	for _, secret := range secrets(dsn) {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	known.Err = errors.New(text)
	return known
}

// Redact returns the connection string with every password in it replaced. Where a string is too broken to
// tell, more than the password is hidden.
func Redact(dsn string) string {
	for _, secret := range spans(dsn) {
		dsn = dsn[:secret.from] + hidden + dsn[secret.to:]
	}
	return dsn
}

func secrets(dsn string) []string {
	var found []string
	for _, s := range spans(dsn) {
		secret := dsn[s.from:s.to]
		found = append(found, secret)
		if plain, err := url.QueryUnescape(secret); err == nil {
			found = append(found, plain)
		}
		found = append(found, strings.Trim(secret, "'"))
	}
	for i, secret := range found {
		// An empty string would be "found" everywhere.
		if secret == "" {
			found[i] = hidden
		}
	}
	return found
}

type span struct{ from, to int }

// passwordKey finds the parameters that hold a secret, in a URL's query and in a key=value string alike.
var passwordKey = regexp.MustCompile(`(?i)(?:^|[\s?&;'])(?:ssl|scram_client_|oauth_client_)?(?:password|passphrase|secret|pwd)\s*=\s*`)

// spans returns where the passwords stand, last first and without overlap.
func spans(dsn string) []span {
	var found []span
	scheme := strings.Index(dsn, "://")
	if scheme >= 0 {
		if s, ok := userinfoPassword(dsn, scheme+3); ok {
			found = append(found, s)
		}
	}
	for _, match := range passwordKey.FindAllStringIndex(dsn, -1) {
		from := match[1]
		to := valueEnd(dsn, from, scheme >= 0)
		if len(found) > 0 && from < found[len(found)-1].to {
			continue
		}
		found = append(found, span{from, to})
	}
	for i, j := 0, len(found)-1; i < j; i, j = i+1, j-1 {
		found[i], found[j] = found[j], found[i]
	}
	return found
}

// userinfoPassword finds the password of scheme://user:password@host. It ends at the last @ of the string: a
// password may contain characters that should have been encoded, and hiding too much does no harm.
func userinfoPassword(dsn string, from int) (span, bool) {
	end := strings.LastIndexByte(dsn, '@')
	if end < from {
		return span{}, false
	}
	colon := strings.IndexByte(dsn[from:end], ':')
	if colon < 0 {
		return span{}, false
	}
	return span{from + colon + 1, end}, true
}

// valueEnd returns where a parameter's value ends.
func valueEnd(dsn string, from int, isURL bool) int {
	rest := dsn[from:]
	if isURL {
		if end := strings.IndexAny(rest, "&;"); end >= 0 {
			return from + end
		}
		return len(dsn)
	}
	quoted := strings.HasPrefix(rest, "'")
	for i := 0; i < len(rest); i++ {
		switch {
		case rest[i] == '\\':
			i++
		case quoted && i > 0 && rest[i] == '\'':
			return from + i + 1
		case !quoted && (rest[i] == ' ' || rest[i] == '\t' || rest[i] == '\n'):
			return from + i
		}
	}
	return len(dsn)
}
