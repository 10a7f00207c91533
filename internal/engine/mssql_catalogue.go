package engine

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fencectl/fencectl/procs"
)

// mssqlDefinitionHash is the hash of what the server stores for the module m: three quarters of a SHA-256, as
// numbers, since Babelfish cannot write binary values in hexadecimal.
const mssqlDefinitionHash = `CONCAT(CAST(SUBSTRING(HASHBYTES('SHA2_256', m.definition), 1, 8) AS bigint), N':',
              CAST(SUBSTRING(HASHBYTES('SHA2_256', m.definition), 9, 8) AS bigint), N':',
              CAST(SUBSTRING(HASHBYTES('SHA2_256', m.definition), 17, 8) AS bigint))`

// Catalogue implements [Reader]. The form of the routine timeline is PostgreSQL's affair.
func (s *mssqlSession) Catalogue(ctx context.Context, _ Timeline) (*Catalogue, error) {
	c := &Catalogue{Roles: map[string]Role{}, Ledger: map[string]LedgerRow{}}
	reads := []struct {
		what string
		read func(context.Context, *Catalogue) error
	}{
		{"the server", s.readServer},
		{"the roles", s.readRoles},
		{"the schema", s.readSchema},
		{"the relations", s.readRelations},
		{"the ledger", s.readLedger},
		{"the floor", s.readFloor},
		{"the routines", s.readRoutines},
		{"the grants", s.readGrants},
		{"the other objects", s.readForeign},
	}
	for _, r := range reads {
		if err := r.read(ctx, c); err != nil {
			return nil, fmt.Errorf("read %s: %w", r.what, err)
		}
	}
	return c, readMSSQLFiles(c)
}

// each reads rows into places, and calls found for each.
func (s *mssqlSession) each(ctx context.Context, query string, places []any, found func()) error {
	rows, err := s.executor().QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return err
		}
		found()
	}
	return rows.Err()
}

func (s *mssqlSession) readServer(ctx context.Context, c *Catalogue) error {
	var edition int
	var babelfish, delayed sql.NullInt64
	var updateability string
	var mayCreateSchema, mayCreateRole, owner sql.NullInt64
	err := s.executor().QueryRowContext(ctx, `
SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), CAST(SERVERPROPERTY('EngineEdition') AS int),
       CAST(SERVERPROPERTY('Babelfish') AS int), DB_NAME(), USER_NAME(),
       CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)),
       (SELECT CAST(d.delayed_durability AS int) FROM sys.databases d WHERE d.name = DB_NAME()),
       HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE SCHEMA'), HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE ROLE'),
       IS_MEMBER(N'db_owner')`).Scan(&c.Version, &edition, &babelfish, &c.Database, &c.User, &updateability, &delayed,
		&mayCreateSchema, &mayCreateRole, &owner)
	if err != nil {
		return err
	}
	major, _, _ := strings.Cut(c.Version, ".")
	if c.VersionNumber, err = strconv.Atoi(major); err != nil {
		return fmt.Errorf("the version %q: %w", c.Version, err)
	}
	c.Babelfish = babelfish.Int64 == 1
	// Azure SQL Database and Managed Instance are always new, whatever number they give.
	c.Evergreen = edition == 5 || edition == 8
	c.Standby = updateability == "READ_ONLY"
	c.DelayedDurability = DelayedDurability(delayed.Int64)
	may := func(right sql.NullInt64) bool { return right.Int64 == 1 || owner.Int64 == 1 || c.User == "dbo" }
	c.CanCreateSchema, c.CanCreateRole = may(mayCreateSchema), may(mayCreateRole)
	return nil
}

func (s *mssqlSession) readRoles(ctx context.Context, c *Catalogue) error {
	var name string
	return s.each(ctx, `SELECT p.name FROM sys.database_principals p WHERE p.type = N'R' AND p.name LIKE N'fence[_]%'`, []any{&name}, func() {
		if slices.ContainsFunc(procs.Roles(), func(r procs.Role) bool { return r.Name == name }) {
			c.Roles[name] = Role{}
		}
	})
}

// readSchema knows our schema by an extended property, whose name is the mark.
func (s *mssqlSession) readSchema(ctx context.Context, c *Catalogue) error {
	var schema Schema
	var mark sql.NullString
	var objects int64
	var control, member sql.NullInt64
	err := s.executor().QueryRowContext(ctx, `
SELECT p.name, (SELECT CAST(e.value AS nvarchar(4000)) FROM sys.extended_properties e
                 WHERE e.class = 3 AND e.major_id = n.schema_id AND e.minor_id = 0 AND e.name = N'`+schemaMark+`'),
       (SELECT COUNT_BIG(*) FROM sys.objects o WHERE o.schema_id = n.schema_id),
       HAS_PERMS_BY_NAME(N'fence', N'SCHEMA', N'CONTROL'), IS_MEMBER(N'db_owner')
  FROM sys.schemas n
  JOIN sys.database_principals p ON p.principal_id = n.principal_id
 WHERE n.name = N'fence'`).Scan(&schema.Owner, &mark, &objects, &control, &member)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	schema.Comment, schema.Ours, schema.Empty = mark.String, mark.Valid, objects == 0
	schema.MayAct = control.Int64 == 1 || member.Int64 == 1 || c.User == "dbo" || c.User == schema.Owner
	c.Schema = &schema
	return err
}

// kinds of relations, as sys.objects names them.
const relationKind = `CASE RTRIM(o.type) WHEN N'U' THEN N'table' WHEN N'V' THEN N'view' END`

func (s *mssqlSession) readRelations(ctx context.Context, c *Catalogue) error {
	var r Relation
	err := s.each(ctx, `
SELECT o.name, `+relationKind+`, COALESCE(p.name, owner.name)
  FROM sys.objects o
  JOIN sys.schemas n ON n.schema_id = o.schema_id
  JOIN sys.database_principals owner ON owner.principal_id = n.principal_id
  LEFT JOIN sys.database_principals p ON p.principal_id = o.principal_id
 WHERE n.name = N'fence' AND RTRIM(o.type) IN (N'U', N'V')
 ORDER BY o.name`, []any{&r.Name, &r.Kind, &r.Owner}, func() { c.Relations = append(c.Relations, r) })
	if err != nil {
		return err
	}
	slices.SortFunc(c.Relations, func(a, b Relation) int { return strings.Compare(a.Name, b.Name) })
	if err := s.readColumns(ctx, c); err != nil {
		return err
	}
	return s.readIndexes(ctx, c)
}

// readColumns describes the columns of tables. Those of views follow from them, and engines differ in the types
// that they give to expressions: their names are enough.
func (s *mssqlSession) readColumns(ctx context.Context, c *Catalogue) error {
	var relation, name, typ string
	var length, precision, scale int
	var nullable bool
	var collation sql.NullString
	return s.each(ctx, `
SELECT o.name, k.name, t.name, k.max_length, k.precision, k.scale, k.is_nullable, k.collation_name
  FROM sys.columns k
  JOIN sys.objects o ON o.object_id = k.object_id
  JOIN sys.schemas n ON n.schema_id = o.schema_id
  JOIN sys.types t ON t.user_type_id = k.user_type_id
 WHERE n.name = N'fence' AND RTRIM(o.type) IN (N'U', N'V')
 ORDER BY o.name, k.column_id`, []any{&relation, &name, &typ, &length, &precision, &scale, &nullable, &collation}, func() {
		found := c.Relation(relation)
		if found.Kind == "view" {
			found.Columns = append(found.Columns, name)
			return
		}
		column := name + " " + columnType(typ, length)
		if strings.HasSuffix(strings.ToLower(collation.String), "_bin2") {
			column += " BIN2" // names are compared by code point: docs/sql-server.md
		}
		if !nullable {
			column += " NOT NULL"
		}
		found.Columns = append(found.Columns, column)
	})
}

// columnType is a type as it is declared. datetime2 is always the one with seven digits: Babelfish keeps six.
func columnType(name string, length int) string {
	unit := 1
	switch name {
	case "nvarchar", "nchar":
		unit = 2
		fallthrough
	case "varchar", "char", "varbinary", "binary":
		if length < 0 {
			return name + "(max)"
		}
		return fmt.Sprintf("%s(%d)", name, length/unit)
	}
	return name
}

// readIndexes describes keys and indexes by their columns: names of keys are made up by the server, and whether
// an index is clustered is not kept by Babelfish.
func (s *mssqlSession) readIndexes(ctx context.Context, c *Catalogue) error {
	type index struct{ relation, kind, columns string }
	var found []index
	var last int64 = -1
	var relation, column string
	var number int64
	var primary, unique, included bool
	err := s.each(ctx, `
SELECT o.name, CAST(i.object_id AS bigint) * 1000 + i.index_id, i.is_primary_key, i.is_unique, k.is_included_column, c.name
  FROM sys.indexes i
  JOIN sys.objects o ON o.object_id = i.object_id
  JOIN sys.schemas n ON n.schema_id = o.schema_id
  JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
  JOIN sys.columns c ON c.object_id = i.object_id AND c.column_id = k.column_id
 WHERE n.name = N'fence' AND RTRIM(o.type) = N'U'
 ORDER BY o.name, i.index_id, k.index_column_id`, []any{&relation, &number, &primary, &unique, &included, &column}, func() {
		if number != last {
			kind := "INDEX"
			switch {
			case primary:
				kind = "PRIMARY KEY"
			case unique:
				kind = "UNIQUE"
			}
			found = append(found, index{relation, kind, ""})
			last = number
		}
		this := &found[len(found)-1]
		separator := ", "
		if this.columns == "" {
			separator = ""
		}
		this.columns += separator + column
		if included {
			this.columns += " INCLUDED"
		}
	})
	for _, i := range found {
		r := c.Relation(i.relation)
		r.Indexes = append(r.Indexes, fmt.Sprintf("%s (%s)", i.kind, i.columns))
		slices.Sort(r.Indexes)
	}
	return err
}

// readLedger reads the tables where it may, and else the view that every role of ours may read.
func (s *mssqlSession) readLedger(ctx context.Context, c *Catalogue) error {
	c.VersionTable, c.LedgerTable = c.Relation("goose_db_version") != nil, c.Relation("ledger") != nil
	if !c.VersionTable && c.Relation("deployment") == nil {
		// Objects that one has no right on are not shown: a marked schema that looks empty is not readable.
		c.Readable = c.Schema == nil || !c.Schema.Ours || c.Schema.MayAct
		return nil
	}
	versions := `SELECT v.version_id, CAST(v.tstamp AS datetime2(7)) FROM fence.goose_db_version v WHERE v.is_applied = 1 AND v.version_id > 0 ORDER BY v.version_id`
	ledger := `SELECT g.routine, g.[file], g.file_hash, g.definition_hash, g.applied_at, g.applied_by FROM fence.ledger g`
	if c.Relation("deployment") != nil {
		c.VersionTable, c.LedgerTable = true, true
		versions = `SELECT CAST(d.name AS bigint), d.applied_at FROM fence.deployment d WHERE d.kind = N'migration' ORDER BY 1`
		ledger = `SELECT d.name, d.[file], d.file_hash, d.definition_hash, d.applied_at, d.applied_by FROM fence.deployment d WHERE d.kind = N'routine'`
	}
	err := s.readDeployment(ctx, c, versions, ledger)
	c.Readable = err == nil
	if explained := explain(ctx, "", err); KindOf(explained) != KindNotPermitted {
		return explained
	}
	return nil
}

func (s *mssqlSession) readDeployment(ctx context.Context, c *Catalogue, versions, ledger string) error {
	var m AppliedMigration
	if err := s.each(ctx, versions, []any{&m.Version, &m.At}, func() { c.Applied = append(c.Applied, m) }); err != nil {
		return err
	}
	if !c.LedgerTable {
		return nil
	}
	var name string
	var row LedgerRow
	return s.each(ctx, ledger, []any{&name, &row.File, &row.FileHash, &row.DefinitionHash, &row.AppliedAt, &row.AppliedBy},
		func() { c.Ledger[name] = row })
}

func (s *mssqlSession) readFloor(ctx context.Context, c *Catalogue) error {
	if c.Relation("floor") == nil {
		return nil
	}
	var floor int64
	err := s.executor().QueryRowContext(ctx, "SELECT f.at_least FROM fence.floor f").Scan(&floor)
	if err == nil {
		c.Floor = &floor
	}
	if explained := explain(ctx, "", err); KindOf(explained) != KindNotPermitted && !errors.Is(err, sql.ErrNoRows) {
		return explained
	}
	return nil
}

const routineKind = `CASE WHEN RTRIM(o.type) = N'P' THEN N'PROCEDURE' ELSE N'FUNCTION' END`

func (s *mssqlSession) readRoutines(ctx context.Context, c *Catalogue) error {
	var r Routine
	var ansiNulls, quotedIdentifier bool
	err := s.each(ctx, `
SELECT o.name, `+routineKind+`, `+mssqlDefinitionHash+`, COALESCE(p.name, owner.name),
       COALESCE(m.uses_ansi_nulls, 0), COALESCE(m.uses_quoted_identifier, 0)
  FROM sys.objects o
  JOIN sys.schemas n ON n.schema_id = o.schema_id
  JOIN sys.database_principals owner ON owner.principal_id = n.principal_id
  LEFT JOIN sys.database_principals p ON p.principal_id = o.principal_id
  LEFT JOIN sys.sql_modules m ON m.object_id = o.object_id
 WHERE n.name = N'fence' AND RTRIM(o.type) IN (N'P', N'FN', N'IF', N'TF')
 ORDER BY o.name`, []any{&r.Name, &r.Kind, &r.DefinitionHash, &r.Owner, &ansiNulls, &quotedIdentifier}, func() {
		r.Identity = "fence." + r.Name
		r.Settings = moduleSettings(ansiNulls, quotedIdentifier)
		c.Routines = append(c.Routines, r)
	})
	return err
}

// moduleSettings are those that a routine has kept since it was created.
func moduleSettings(ansiNulls, quotedIdentifier bool) []string {
	text := map[bool]string{true: "ON", false: "OFF"}
	return []string{"ANSI_NULLS " + text[ansiNulls], "QUOTED_IDENTIFIER " + text[quotedIdentifier]}
}

// readGrants lists what others than the owner may do.
func (s *mssqlSession) readGrants(ctx context.Context, c *Catalogue) error {
	if c.Babelfish {
		return s.readBabelfishGrants(ctx, c)
	}
	var g Grant
	var kind, name, column, state string
	err := s.each(ctx, `
SELECT CASE d.class WHEN 3 THEN N'SCHEMA' ELSE CASE WHEN RTRIM(o.type) = N'P' THEN N'PROCEDURE'
                    WHEN RTRIM(o.type) IN (N'FN', N'IF', N'TF') THEN N'FUNCTION' ELSE N'TABLE' END END,
       COALESCE(o.name, N''), COALESCE(k.name, N''), g.name, d.permission_name, d.state
  FROM sys.database_permissions d
  JOIN sys.database_principals g ON g.principal_id = d.grantee_principal_id
  LEFT JOIN sys.objects o ON d.class = 1 AND o.object_id = d.major_id
  LEFT JOIN sys.columns k ON d.class = 1 AND k.object_id = d.major_id AND k.column_id = d.minor_id AND d.minor_id > 0
 WHERE (d.class = 1 AND o.schema_id = SCHEMA_ID(N'fence')) OR (d.class = 3 AND d.major_id = SCHEMA_ID(N'fence'))
 ORDER BY 1, 2, 3, 4, 5`, []any{&kind, &name, &column, &g.Grantee, &g.Privilege, &state}, func() {
		g.Kind, g.Object, g.Column, g.Grantable = kind, "fence", column, state == "W"
		if kind != "SCHEMA" {
			g.Object = "fence." + name
		}
		if state == "D" || state == "R" {
			g.Privilege += " (DENY)"
		}
		if g.Grantee == "public" {
			g.Grantee = "PUBLIC"
		}
		c.Grants = append(c.Grants, g)
	})
	return err
}

// readBabelfishGrants reads PostgreSQL's own catalogue, which Babelfish shows to T-SQL as well: its
// sys.database_permissions is empty.
func (s *mssqlSession) readBabelfishGrants(ctx context.Context, c *Catalogue) error {
	var kind, name, acl string
	return s.each(ctx, `
SELECT `+routineKind+`, o.name, CAST(p.proacl AS nvarchar(max))
  FROM pg_catalog.pg_proc p
  JOIN sys.objects o ON o.object_id = p.oid
  JOIN sys.schemas n ON n.schema_id = o.schema_id
 WHERE n.name = N'fence' AND p.proacl IS NOT NULL
UNION ALL
SELECT N'TABLE', o.name, CAST(r.relacl AS nvarchar(max))
  FROM pg_catalog.pg_class r
  JOIN sys.objects o ON o.object_id = r.oid
  JOIN sys.schemas n ON n.schema_id = o.schema_id
 WHERE n.name = N'fence' AND RTRIM(o.type) IN (N'U', N'V') AND r.relacl IS NOT NULL`, []any{&kind, &name, &acl}, func() {
		for _, g := range grantsOfACL(acl, strings.ToLower(c.Database)+"_") {
			g.Kind, g.Object = kind, "fence."+name
			c.Grants = append(c.Grants, g)
		}
	})
}

var aclItem = regexp.MustCompile(`^"?(?:\\?"?)([^="\\]*)(?:\\?"?)=([a-zA-Z*]*)/`)

// grantsOfACL reads an array of aclitems. Roles of a database carry its name in front.
func grantsOfACL(acl, prefix string) []Grant {
	privileges := map[rune]string{'X': "EXECUTE", 'r': "SELECT", 'a': "INSERT", 'w': "UPDATE", 'd': "DELETE"}
	var grants []Grant
	for item := range strings.SplitSeq(strings.Trim(acl, "{}"), ",") {
		match := aclItem.FindStringSubmatch(item)
		if match == nil {
			continue
		}
		grantee := strings.TrimPrefix(match[1], prefix)
		switch grantee {
		case "dbo":
			continue // the owner
		case "":
			grantee = "PUBLIC"
		}
		for _, letter := range match[2] {
			if letter == '*' && len(grants) > 0 {
				grants[len(grants)-1].Grantable = true
			} else if privilege, known := privileges[letter]; known {
				grants = append(grants, Grant{Grantee: grantee, Privilege: privilege})
			}
		}
	}
	return grants
}

// readForeign lists what stands in the schema besides tables, views and routines, but for the keys and constraints
// that belong to our tables. Babelfish keeps the numbers of identity columns in sequences.
func (s *mssqlSession) readForeign(ctx context.Context, c *Catalogue) error {
	ours := "N'U', N'V', N'P', N'FN', N'IF', N'TF', N'PK', N'UQ', N'C', N'D', N'F'"
	if c.Babelfish {
		ours += ", N'SO'"
	}
	var kind, name string
	return s.each(ctx, `
SELECT LOWER(REPLACE(o.type_desc, N'_', N' ')), o.name
  FROM sys.objects o
  JOIN sys.schemas n ON n.schema_id = o.schema_id
 WHERE n.name = N'fence' AND RTRIM(o.type) NOT IN (`+ours+`)
 ORDER BY o.name`, []any{&kind, &name}, func() { c.Foreign = append(c.Foreign, kind+" fence."+name) })
}

// createRoutine is the head of a routine's file, below its comment.
var createRoutine = regexp.MustCompile(`(?m)^CREATE (PROCEDURE|FUNCTION) fence\.\[?(\w+)\]?`)

func readMSSQLFiles(c *Catalogue) error {
	for _, r := range procs.MSSQL() {
		source := r.Source()
		match := createRoutine.FindStringSubmatch(source)
		if match == nil || match[2] != r.Name {
			return fmt.Errorf("read %s: no CREATE PROCEDURE or CREATE FUNCTION fence.%s in it", r.File, r.Name)
		}
		sum := sha256.Sum256([]byte(source))
		c.Files = append(c.Files, File{
			Routine: r, Kind: match[1], Hash: hex.EncodeToString(sum[:]), Identity: "fence." + r.Name,
			Settings: moduleSettings(true, true),
		})
	}
	return nil
}
