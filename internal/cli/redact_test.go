package cli

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// assertSecret checks that neither a password nor a piece of it was shown.
func assertSecret(t *testing.T, got result, password string) {
	t.Helper()
	shown := got.stdout + got.stderr
	for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
		assert.NotContains(t, shown, form)
	}
	for _, piece := range strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune(`@:/?#%&=' \"`, r) }) {
		assert.NotContains(t, shown, piece)
	}
}

func passwords() []string {
	return []string{
		"geheimnis", "geh@eim", "geh:eim", "geh/eim", "geh?eim", "geh#eim", "geh%eim", "geh%41eim", "geh&eim=nis", "geh'eim", `geh\eim`,
		"geh eim", `geh"eim`, "@geheim@", "//geheim@//nis", "gehäim", "geh$eim", "geh${eim}", "7421/geheim", "geh`eim",
	}
}

func TestNoPasswordIsEverShown(t *testing.T) {
	t.Parallel()
	for _, password := range passwords() {
		quoted := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "'"
		forms := map[string]string{
			"url":         "postgres://user:" + url.QueryEscape(password) + "@127.0.0.1:1/db",
			"raw url":     "postgres://user:" + password + "@127.0.0.1:1/db",
			"bad port":    "postgresql://user:" + url.QueryEscape(password) + "@127.0.0.1:port/db",
			"query":       "postgres://127.0.0.1:1/db?user=u&password=" + url.QueryEscape(password),
			"ssl":         "postgres://127.0.0.1:1/db?sslpassword=" + url.QueryEscape(password) + "&sslmode=never",
			"key value":   "host=127.0.0.1 port=1 user=u password=" + quoted,
			"bad value":   "host=127.0.0.1 port=1 sslmode=maybe password=" + quoted,
			"unquoted":    "host=127.0.0.1 port=x user=u password=" + password,
			"unclosed":    "host=127.0.0.1 port=1 password='" + password,
			"sql server":  "sqlserver://sa:" + password + "@127.0.0.1:1?database=d",
			"just a word": password,
		}
		if password == "geh@eim" { // looking up a name takes time
			forms["no host"] = "postgres://user:geh%40eim@does-not-exist.invalid/db"
		}
		for name, dsn := range forms {
			t.Run(name+" "+password, func(t *testing.T) {
				t.Parallel()
				for _, args := range []string{"about -v --timeout 5s", "about -o json --timeout 5s", "verify -o json --timeout 5s", "about --help", "about --bogus", "acquire r --owner w --ttl 1s --timeout 5s"} {
					assertSecret(t, shell{}.run(t, append(strings.Fields(args), "--dsn", dsn)...), password)
				}
				assertSecret(t, on(dsn).run(t, "about", "-v"), password)
				assertSecret(t, shell{}.run(t, "about", "-v", "--dsn-file", writeFile(t, dsn)), password)
			})
		}
	}
}

func TestAMisplacedDSNIsNotEchoed(t *testing.T) {
	t.Parallel()
	dsn := "postgres://user:geh:e@im@host/db"
	for _, args := range [][]string{
		{dsn}, {"--dns=" + dsn}, {"-d" + dsn}, {"about", dsn}, {"about", "--timeout", dsn}, {"about", "-o", dsn},
		{"about", "password=geheim", "-o", "json"}, {"leases", "--limit", dsn}, {"about", "--config", dsn}, {"about", "--dsn-file", dsn},
		{"publish", "r", "--owner", "w", "--generation", "1", "--file", dsn}, {"help", dsn}, {"migrate", dsn},
	} {
		got := on(nowhere).run(t, args...)
		assert.NotEqual(t, 0, got.code, args)
		assert.NotContains(t, got.stdout+got.stderr, "geh", args)
		assert.NotContains(t, got.stdout+got.stderr, "e@im", args)
	}
}

func TestAPieceOfAnUnquotedPasswordIsNotShownAsASetting(t *testing.T) {
	t.Parallel()
	dsn, err := url.Parse(newDatabase(t))
	assert.NoError(t, err)
	password, _ := dsn.User.Password()
	// Had it been quoted, the password would go on after the blank.
	got := shell{}.run(t, "about", "-v", "--dsn", "host=127.0.0.1 port="+dsn.Port()+" user="+dsn.User.Username()+" password="+password+" eim=1")
	assert.Equal(t, 5, got.code)
	assert.Contains(t, got.stderr, "does not know a setting")
	assert.NotContains(t, got.stderr, "eim")
}

func TestAWrongPasswordIsNotShownByTheServersAnswer(t *testing.T) {
	t.Parallel()
	dsn, err := url.Parse(newDatabase(t))
	assert.NoError(t, err)
	for _, password := range passwords() {
		dsn.User = url.UserPassword(dsn.User.Username(), password)
		got := on(dsn.String()).run(t, "about", "-v")
		assert.Equal(t, 5, got.code)
		assertSecret(t, got, password)
	}
}
