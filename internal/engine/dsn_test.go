package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedactHidesEveryPassword(t *testing.T) {
	t.Parallel()
	for dsn, expected := range map[string]string{
		"postgres://u:hunter2@h:5432/d":                 "postgres://u:xxxxx@h:5432/d",
		"postgres://u:hunter2@h/d?sslmode=require":      "postgres://u:xxxxx@h/d?sslmode=require",
		"postgresql://u@h/d?password=hunter2&x=y":       "postgresql://u@h/d?password=xxxxx&x=y",
		"postgres://h/d?user=u&password=hunter2":        "postgres://h/d?user=u&password=xxxxx",
		"postgres://u@h/d?sslkey=k&sslpassword=hunter2": "postgres://u@h/d?sslkey=k&sslpassword=xxxxx",
		"postgres://u:hunter2@h/d?PASSWORD=hunter2":     "postgres://u:xxxxx@h/d?PASSWORD=xxxxx",
		"postgres://u:hunter2%40@h1:1,h2:2/d":           "postgres://u:xxxxx@h1:1,h2:2/d",
		"sqlserver://sa:hunter2@h?database=d":           "sqlserver://sa:xxxxx@h?database=d",
		"host=h user=u password=hunter2 dbname=d":       "host=h user=u password=xxxxx dbname=d",
		"host=h password = hunter2 dbname=d":            "host=h password = xxxxx dbname=d",
		"password='hunter2 is \\' long' host=h":         "password=xxxxx host=h",
		"password=hunter2\\ hunter2 host=h":             "password=xxxxx host=h",
		"host=h sslpassword='hunter2' user=u":           "host=h sslpassword=xxxxx user=u",
		"password='hunter2 never ends":                  "password=xxxxx",
		"server=h;user id=sa;password=hunter2;":         "server=h;user id=sa;password=xxxxx",
		"postgres://u:p@ss/hunter2?x@h/d":               "postgres://u:xxxxx@h/d",
		"postgres://u:hunter2":                          "postgres://u:hunter2", // a host and its port
		"host=h user=u dbname=d":                        "host=h user=u dbname=d",
		"":                                              "",
	} {
		require.Equal(t, expected, Redact(dsn), dsn)
	}
}

func TestOpenNeverPrintsAPassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:hunter2/x@h:99999999/d", "postgres://u:hunter2@h:port/d", "postgres://u:%zzhunter2@h/d",
		"postgres://u:hunter2@h/d?sslmode=hunter2", "postgres://u@h/d?password=hunter2&sslmode=nonsense", "postgres://u:hunter2@h/d?connect_timeout=x",
		"host=h password=hunter2 sslmode=nonsense", "password='hunter2 never ends", "host=h port=x password=hunter2", "password=hunter2 hunter2",
		"u:hunter2@h", "hunter2", "mysql://u:hunter2@h/d", "host=h password=hunter2 service=none servicefile=/nowhere/hunter2",
		"sqlserver://sa:hunter2@h:port",
	} {
		_, err := Open(dsn, Options{})
		require.Error(t, err, dsn)
		var known *Error
		require.ErrorAs(t, err, &known)
		for ; err != nil; err = errors.Unwrap(err) {
			require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", err, err, err, known.Hint), "hunter2", dsn)
		}
	}
}

func TestOpenTellsEnginesApart(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://h/d", "postgresql://h/d", "host=h dbname=d", "dbname = d", ""} {
		e, err := Open(dsn, Options{})
		require.NoError(t, err, dsn)
		require.Equal(t, "postgres", e.Name())
	}
	for dsn, kind := range map[string]Kind{
		"mysql://h": KindUsage, "database": KindUsage, "./file.db": KindUsage,
	} {
		_, err := Open(dsn, Options{})
		require.Equal(t, kind, KindOf(err), dsn)
	}
}
