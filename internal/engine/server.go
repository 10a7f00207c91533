package engine

import (
	"fmt"
	"slices"
)

func unfit(hint, format string, args ...any) error {
	return &Error{Kind: KindUnfit, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// postgresOldest is the oldest version that is supported.
const postgresOldest = 140000

// CheckServer implements [Engine].
func (*postgres) CheckServer(c *Catalogue) error {
	switch {
	case c.Standby:
		return unfit("connect to the primary", "this server is a standby: it takes no writes")
	case c.VersionNumber < postgresOldest:
		return unfit("upgrade the server", "PostgreSQL %s is too old: 14 is the oldest supported", c.Version)
	case c.Encoding != "UTF8":
		return unfit("CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
			"the database's encoding is %s: names are compared by code point, which needs UTF8", c.Encoding)
	}
	return nil
}

// ServerFindings implements [Engine].
func (*postgres) ServerFindings(c *Catalogue) []Finding {
	primary := map[bool]string{true: "this server takes writes", false: "this server is a standby: it takes no writes"}
	return []Finding{
		judged("version", c.VersionNumber >= postgresOldest, "PostgreSQL "+c.Version, "14 is the oldest supported"),
		judged("encoding", c.Encoding == "UTF8", "the database's encoding is "+c.Encoding, "names are compared by code point, which needs UTF8"),
		judged("standby", !c.Standby, primary[!c.Standby], "connect to the primary"),
		timelineFinding(c),
	}
}

// judged is a finding that is fine or unfit.
func judged(check string, fit bool, detail, hint string) Finding {
	if fit {
		return Finding{Check: check, Status: FindingOK, Detail: detail}
	}
	return Finding{Check: check, Status: FindingUnfit, Detail: detail, Hint: hint}
}

// timelineFinding tells whether generations jump after a promotion or a restore.
func timelineFinding(c *Catalogue) Finding {
	none := slices.ContainsFunc(c.Files, func(f File) bool { return f.File == "postgres/timeline_none.sql" })
	if !none {
		return Finding{Check: "timeline_source", Status: FindingOK, Detail: "wal: after a promotion or a restore generations jump ahead"}
	}
	return Finding{
		Check: "timeline_source", Status: FindingWarning,
		Detail: "none: this engine does not show its write-ahead log, so nothing raises generations after a restore or a fail-over that lost commits",
		Hint:   "raise the floor by hand then: fencectl raise-floor",
	}
}

// mssqlOldest is SQL Server 2019.
const mssqlOldest = 15

func mssqlTitle(c *Catalogue) string {
	switch {
	case c.Babelfish:
		return "Babelfish, which calls itself SQL Server " + c.Version
	case c.Evergreen:
		return "Azure SQL " + c.Version
	}
	return "SQL Server " + c.Version
}

func mssqlNewEnough(c *Catalogue) bool {
	return c.Babelfish || c.Evergreen || c.VersionNumber >= mssqlOldest
}

// CheckServer implements [Engine].
func (*mssql) CheckServer(c *Catalogue) error {
	switch {
	case c.Standby:
		return unfit("connect to the primary replica", "this database is read-only")
	case !mssqlNewEnough(c):
		return unfit("upgrade the server", "%s is too old: 2019 (15) is the oldest supported", mssqlTitle(c))
	case c.DelayedDurability == DurabilityForced:
		return unfit(fmt.Sprintf("ALTER DATABASE %s SET DELAYED_DURABILITY = DISABLED", bracketed(c.Database)),
			"delayed durability is FORCED: a crash would take generations back that were given out")
	}
	return nil
}

// ServerFindings implements [Engine].
func (*mssql) ServerFindings(c *Catalogue) []Finding {
	writable := map[bool]string{true: "this database takes writes", false: "this database is read-only"}
	durability := Finding{Check: "delayed_durability", Status: FindingOK, Detail: "delayed durability is disabled"}
	switch c.DelayedDurability {
	case DurabilityForced:
		durability.Status, durability.Detail = FindingUnfit, "delayed durability is FORCED: a crash would take generations back that were given out"
	case DurabilityAllowed:
		durability.Status, durability.Detail = FindingWarning, "delayed durability is ALLOWED: a caller who commits with it can lose what a routine answered"
	}
	if durability.Status != FindingOK {
		durability.Hint = fmt.Sprintf("ALTER DATABASE %s SET DELAYED_DURABILITY = DISABLED", bracketed(c.Database))
	}
	return []Finding{
		judged("version", mssqlNewEnough(c), mssqlTitle(c), "2019 (15) is the oldest supported"),
		judged("read_only", !c.Standby, writable[!c.Standby], "connect to the primary replica"),
		durability,
	}
}
