package client

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConnectionsHaveANameAndABound(t *testing.T) {
	t.Parallel()
	config := openedPostgres(t, "postgres://u@127.0.0.1:1/d")
	assert.Equal(t, "fencectl", config.RuntimeParams["application_name"])
	assert.NotEqual(t, pgx.QueryExecModeCacheStatement, config.DefaultQueryExecMode, "a pooler may not keep prepared statements")
	assert.Equal(t, connectTimeout, openedPostgres(t, "host=h dbname=d").ConnectTimeout)

	config = openedPostgres(t, "postgres://h/d?application_name=nightly&connect_timeout=3&pool_max_conns=7")
	assert.Equal(t, "nightly", config.RuntimeParams["application_name"])
	assert.Equal(t, 3.0, config.ConnectTimeout.Seconds())
	assert.NotContains(t, config.RuntimeParams, "pool_max_conns")
}

func openedPostgres(t *testing.T, dsn string) *pgx.ConnConfig {
	t.Helper()
	target, err := Open(dsn, Options{})
	require.NoError(t, err)
	return target.(postgres).config
}

func TestAnAddressNamesNoPassword(t *testing.T) {
	t.Parallel()
	for dsn, address := range map[string]string{
		"postgres://u:geheim@h:5/d":                          "d as u on h:5",
		"sqlserver://u:geheim@h:5?database=d":                "d as u on h:5",
		"mssql://u:geheim@h?database=d":                      "d as u on h",
		"SQLSERVER://u:geheim@h/prod?database=d":             `d as u on h\prod`,
		"sqlserver://h?database=d&user+id=u&password=geheim": "d as u on h",
	} {
		target, err := Open(dsn, Options{})
		require.NoError(t, err, dsn)
		assert.Equal(t, address, target.Address(), dsn)
	}
}

func TestABrokenStringIsNotQuoted(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:geheim@h:port/d", "sqlserver://u:geheim@h:port", "mssql://u:ge@heim@h", "geheim",
		"sqlserver://u:geheim@h?encrypt=geheim", "sqlserver://u:%zzgeheim@h",
	} {
		_, err := Open(dsn, Options{})
		var unusable *UnusableError
		require.ErrorAs(t, err, &unusable, dsn)
		assert.NotContains(t, unusable.Reason+unusable.Hint, "geheim")
		assert.NotEmpty(t, unusable.Hint)
	}
}

func TestAGlobIsNoPatternOfTheDatabase(t *testing.T) {
	t.Parallel()
	for glob, pattern := range map[string]string{
		"*": "%", "a?c": "a_c", "100%": `100\%`, "a_b": `a\_b`, `\*`: `*`, `\`: `\\`, "[x]": "[x]",
	} {
		assert.Equal(t, pattern, like(glob, `%_\`), glob)
	}
	assert.Equal(t, `\[x]`, like("[x]", `%_\[`), "T-SQL knows classes")
}

func TestASelectionIsSaidInEachDialect(t *testing.T) {
	t.Parallel()
	s := Selection{
		View: "rejections", Columns: append(Columns("reason"), Sum("occurrences"), Distinct("resource")),
		Where:   []Condition{Glob("resource", "r*"), Within("last_at", 90_000), Among("reason", "a", "b"), Equals("owner", "o")},
		GroupBy: []string{"reason"}, OrderBy: []string{"-2", "reason"}, Limit: 5,
	}
	text, args := postgresDialect{}.statement(s)
	assert.Equal(t, "SELECT reason, sum(occurrences)::bigint, count(DISTINCT resource) FROM fence.rejections "+
		"WHERE resource LIKE $1 AND last_at >= clock_timestamp() - $2::bigint * interval '1 millisecond' AND reason IN ($3, $4) AND owner = $5 "+
		"GROUP BY reason ORDER BY 2 DESC, reason LIMIT $6", text)
	assert.Equal(t, []any{"r%", int64(90_000), "a", "b", "o", int64(5)}, args)

	text, args = sqlServerDialect{}.statement(s)
	assert.Equal(t, "SELECT TOP (@p1) reason, SUM(occurrences), COUNT_BIG(DISTINCT resource) FROM fence.rejections "+
		`WHERE resource LIKE @p2 ESCAPE N'\' AND last_at >= DATEADD(millisecond, -CAST(@p3 % 1000 AS int), DATEADD(second, -CAST(@p3 / 1000 AS int), SYSUTCDATETIME())) `+
		"AND reason IN (@p4, @p5) AND owner = @p6 GROUP BY reason ORDER BY 2 DESC, reason", text)
	assert.Equal(t, []any{int64(5), "r%", int64(90_000), "a", "b", "o"}, args)
}
