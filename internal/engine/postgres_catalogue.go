package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/procs"
)

// schemaMark begins the comment of a schema that is ours. What follows is free.
const schemaMark = "fencectl"

// definitionHash is the hash of what the server stores for the routine p of the language l. It takes the
// catalogue's parts instead of pg_get_functiondef, whose layout may change from one version to the next: the
// hash survives pg_upgrade. search_path has to be pg_catalog, since names of types depend on it.
const definitionHash = `encode(sha256(convert_to(concat_ws(E'\n',
           pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname, p.prokind::text,
           p.provolatile::text, p.prosecdef::text, p.proisstrict::text, p.proretset::text,
           p.proparallel::text, p.proleakproof::text, array_to_string(p.proconfig, ','), p.prosrc), 'UTF8')), 'hex')`

// Catalogue implements [Reader].
func (s *postgresSession) Catalogue(ctx context.Context, timeline Timeline) (c *Catalogue, err error) {
	if s.conn.PgConn().TxStatus() == 'I' {
		err = s.Transaction(ctx, func(ctx context.Context) error {
			c, err = s.catalogue(ctx, timeline)
			return err
		})
		return c, err
	}
	return s.catalogue(ctx, timeline)
}

func (s *postgresSession) catalogue(ctx context.Context, timeline Timeline) (*Catalogue, error) {
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
	return c, s.readFiles(ctx, c, timeline)
}

func (s *postgresSession) readServer(ctx context.Context, c *Catalogue) error {
	return s.conn.QueryRow(ctx, `
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
       current_setting('server_encoding'), current_database()::text, pg_is_in_recovery(), current_user::text,
       has_database_privilege(current_database(), 'CREATE'), r.rolcreaterole OR r.rolsuper
  FROM pg_catalog.pg_roles r
 WHERE r.rolname = current_user`).Scan(&c.Version, &c.VersionNumber, &c.Encoding, &c.Database, &c.Standby, &c.User,
		&c.CanCreateSchema, &c.CanCreateRole)
}

func (s *postgresSession) readRoles(ctx context.Context, c *Catalogue) error {
	rows, err := s.conn.Query(ctx, "SELECT rolname::text, rolcanlogin, rolsuper FROM pg_catalog.pg_roles WHERE rolname LIKE 'fence\\_%'")
	if err != nil {
		return err
	}
	var name string
	var role Role
	_, err = pgx.ForEachRow(rows, []any{&name, &role.Login, &role.Superuser}, func() error {
		if slices.ContainsFunc(procs.Roles(), func(r procs.Role) bool { return r.Name == name }) {
			c.Roles[name] = role
		}
		return nil
	})
	return err
}

// readSchema asks for membership in the owner, and from version 16 on for the right to SET ROLE to it.
func (s *postgresSession) readSchema(ctx context.Context, c *Catalogue) error {
	right := "MEMBER"
	if c.VersionNumber >= 160000 {
		right = "SET"
	}
	var schema Schema
	err := s.conn.QueryRow(ctx, `
SELECT pg_get_userbyid(n.nspowner)::text, coalesce(obj_description(n.oid, 'pg_namespace'), ''),
       NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                    WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass AND d.refobjid = n.oid AND d.deptype <> 'i'),
       pg_has_role(current_user, n.nspowner, '`+right+`')
  FROM pg_catalog.pg_namespace n
 WHERE n.nspname = 'fence'`).Scan(&schema.Owner, &schema.Comment, &schema.Empty, &schema.MayAct)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	schema.Ours = strings.HasPrefix(schema.Comment, schemaMark)
	c.Schema = &schema
	return err
}

func (s *postgresSession) readRelations(ctx context.Context, c *Catalogue) error {
	rows, err := s.conn.Query(ctx, `
SELECT r.relname::text,
       CASE r.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'relation of kind ' || r.relkind::text END,
       pg_get_userbyid(r.relowner)::text,
       coalesce(ARRAY(SELECT o FROM unnest(r.reloptions) o ORDER BY o COLLATE "C"), '{}'),
       CASE WHEN r.relkind IN ('r', 'v') THEN
           ARRAY(SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
                   FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
       ELSE '{}' END,
       ARRAY(SELECT pg_get_indexdef(i.indexrelid) || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END
               FROM pg_catalog.pg_index i WHERE i.indrelid = r.oid ORDER BY pg_get_indexdef(i.indexrelid) COLLATE "C")
  FROM pg_catalog.pg_class r
  JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
 WHERE n.nspname = 'fence' AND r.relkind NOT IN ('i', 'I', 'c', 't')
 ORDER BY r.relname COLLATE "C"`)
	if err != nil {
		return err
	}
	c.Relations, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Relation, error) {
		var r Relation
		err := row.Scan(&r.Name, &r.Kind, &r.Owner, &r.Options, &r.Columns, &r.Indexes)
		return r, err
	})
	return err
}

// readLedger reads the tables where it may, and else the view that every role of ours may read.
func (s *postgresSession) readLedger(ctx context.Context, c *Catalogue) error {
	c.VersionTable, c.LedgerTable = c.Relation("goose_db_version") != nil, c.Relation("ledger") != nil
	if !c.VersionTable {
		c.Readable = true
		return nil
	}
	versions, ledger := `SELECT v.version_id, v.tstamp AT TIME ZONE 'UTC' FROM fence.goose_db_version v WHERE v.is_applied AND v.version_id > 0 ORDER BY v.version_id`,
		`SELECT g.routine, g.file, g.file_hash, g.definition_hash, g.applied_at, g.applied_by FROM fence.ledger g`
	if c.Relation("deployment") != nil {
		versions = `SELECT d.name::bigint, d.applied_at FROM fence.deployment d WHERE d.kind = 'migration' ORDER BY d.name::bigint`
		ledger = `SELECT d.name, d.file, d.file_hash, d.definition_hash, d.applied_at, d.applied_by FROM fence.deployment d WHERE d.kind = 'routine'`
	}
	err := savepoint(ctx, s.conn, func() error { return s.readDeployment(ctx, c, versions, ledger) })
	c.Readable = err == nil
	if explained := explain(ctx, "", err); KindOf(explained) != KindNotPermitted {
		return explained
	}
	return nil
}

func (s *postgresSession) readDeployment(ctx context.Context, c *Catalogue, versions, ledger string) error {
	rows, err := s.conn.Query(ctx, versions)
	if err != nil {
		return err
	}
	c.Applied, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (AppliedMigration, error) {
		var m AppliedMigration
		err := row.Scan(&m.Version, &m.At)
		return m, err
	})
	if err != nil || !c.LedgerTable {
		return err
	}
	if rows, err = s.conn.Query(ctx, ledger); err != nil {
		return err
	}
	var name string
	var row LedgerRow
	_, err = pgx.ForEachRow(rows, []any{&name, &row.File, &row.FileHash, &row.DefinitionHash, &row.AppliedAt, &row.AppliedBy}, func() error {
		c.Ledger[name] = row
		return nil
	})
	return err
}

func (s *postgresSession) readFloor(ctx context.Context, c *Catalogue) error {
	if c.Relation("floor") == nil {
		return nil
	}
	err := savepoint(ctx, s.conn, func() error {
		return s.conn.QueryRow(ctx, "SELECT f.at_least FROM fence.floor f").Scan(&c.Floor)
	})
	if explained := explain(ctx, "", err); KindOf(explained) != KindNotPermitted && !errors.Is(err, pgx.ErrNoRows) {
		return explained
	}
	return nil
}

func (s *postgresSession) readRoutines(ctx context.Context, c *Catalogue) error {
	rows, err := s.conn.Query(ctx, `
SELECT p.proname::text, p.oid::regprocedure::text, CASE WHEN p.prokind = 'f' THEN 'FUNCTION' ELSE 'ROUTINE' END,
       coalesce(CASE WHEN p.proargmodes IS NULL THEN p.proargnames
            ELSE ARRAY(SELECT n FROM unnest(p.proargnames, p.proargmodes) WITH ORDINALITY u(n, m, i)
                        WHERE m IN ('i', 'b', 'v') ORDER BY i) END, '{}'),
       p.pronargdefaults, coalesce(pg_get_function_result(p.oid), ''), `+definitionHash+`,
       pg_get_userbyid(p.proowner)::text, l.lanname::text, p.provolatile = 'v', p.prosecdef, coalesce(p.proconfig, '{}')
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_catalog.pg_language l ON l.oid = p.prolang
 WHERE n.nspname = 'fence' AND p.prokind <> 'a'
 ORDER BY p.oid::regprocedure::text COLLATE "C"`)
	if err != nil {
		return err
	}
	c.Routines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Routine, error) {
		var r Routine
		err := row.Scan(&r.Name, &r.Identity, &r.Kind, &r.ArgumentNames, &r.Defaults, &r.Result, &r.DefinitionHash,
			&r.Owner, &r.Language, &r.Volatile, &r.SecurityDefiner, &r.Settings)
		return r, err
	})
	return err
}

// readGrants lists what others than the owner may do, column privileges included.
func (s *postgresSession) readGrants(ctx context.Context, c *Catalogue) error {
	rows, err := s.conn.Query(ctx, `
WITH object AS (
    SELECT 'SCHEMA' AS kind, 'fence' AS name, ''::text AS col, n.nspowner AS owner,
           coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
      FROM pg_catalog.pg_namespace n WHERE n.nspname = 'fence'
    UNION ALL
    SELECT CASE WHEN p.prokind = 'f' THEN 'FUNCTION' ELSE 'ROUTINE' END, p.oid::regprocedure::text, '', p.proowner,
           coalesce(p.proacl, acldefault('f', p.proowner))
      FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = 'fence'
    UNION ALL
    SELECT CASE WHEN r.relkind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, r.oid::regclass::text, '', r.relowner,
           coalesce(r.relacl, acldefault(CASE WHEN r.relkind = 'S' THEN 's' ELSE 'r' END::"char", r.relowner))
      FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
     WHERE n.nspname = 'fence' AND r.relkind NOT IN ('i', 'I', 'c', 't')
    UNION ALL
    SELECT 'TABLE', r.oid::regclass::text, a.attname::text, r.relowner, a.attacl
      FROM pg_catalog.pg_attribute a
      JOIN pg_catalog.pg_class r ON r.oid = a.attrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
     WHERE n.nspname = 'fence' AND a.attacl IS NOT NULL AND NOT a.attisdropped
)
SELECT o.kind, o.name, o.col, CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(x.grantee)::text END,
       x.privilege_type, bool_or(x.is_grantable)
  FROM object o CROSS JOIN LATERAL aclexplode(o.acl) x
 WHERE x.grantee <> o.owner
 GROUP BY 1, 2, 3, 4, 5
 ORDER BY 1, 2, 3, 4, 5`)
	if err != nil {
		return err
	}
	c.Grants, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Grant, error) {
		var g Grant
		err := row.Scan(&g.Kind, &g.Object, &g.Column, &g.Grantee, &g.Privilege, &g.Grantable)
		return g, err
	})
	return err
}

// readForeign lists what stands in the schema besides relations and routines (types, operators, aggregates,
// extensions and so on): none of it is ours. Row types, and what an extension brings, go with their owner.
func (s *postgresSession) readForeign(ctx context.Context, c *Catalogue) error {
	rows, err := s.conn.Query(ctx, `
SELECT pg_describe_object(d.classid, d.objid, 0)
  FROM pg_catalog.pg_depend d
  JOIN pg_catalog.pg_namespace n ON n.oid = d.refobjid
 WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass AND n.nspname = 'fence'
   AND NOT (d.classid = 'pg_catalog.pg_class'::regclass
            AND EXISTS (SELECT FROM pg_catalog.pg_class r WHERE r.oid = d.objid AND r.relkind NOT IN ('i', 'I', 'c', 't')))
   AND NOT (d.classid = 'pg_catalog.pg_proc'::regclass
            AND EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid = d.objid AND p.prokind <> 'a'))
   AND NOT (d.classid = 'pg_catalog.pg_type'::regclass
            AND EXISTS (SELECT FROM pg_catalog.pg_depend i
                         WHERE i.classid = d.classid AND i.objid = d.objid AND i.deptype = 'i'))
   AND d.classid <> 'pg_catalog.pg_default_acl'::regclass
 ORDER BY 1`)
	if err != nil {
		return err
	}
	c.Foreign, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return err
}

// readFiles puts the signatures of the files into the server's terms.
func (s *postgresSession) readFiles(ctx context.Context, c *Catalogue, timeline Timeline) error {
	wal, err := s.walTimeline(ctx, c, timeline)
	if err != nil {
		return fmt.Errorf("try the WAL functions: %w", err)
	}
	routines := procs.Postgres(wal)
	signatures := make([]signature, len(routines))
	var types, names []string
	for i, r := range routines {
		if signatures[i], err = parseSignature(r.Source()); err != nil {
			return fmt.Errorf("read %s: %w", r.File, err)
		}
		types = append(append(types, signatures[i].types...), signatures[i].resultTypes...)
		names = append(append(names, signatures[i].name), signatures[i].resultNames...)
	}
	typeNames, err := s.translate(ctx, "SELECT t, coalesce(to_regtype(t)::text, t) FROM unnest($1::text[]) t", types)
	if err != nil {
		return fmt.Errorf("look up types: %w", err)
	}
	quoted, err := s.translate(ctx, "SELECT n, quote_ident(n) FROM unnest($1::text[]) n", names)
	if err != nil {
		return fmt.Errorf("quote names: %w", err)
	}
	for i, r := range routines {
		c.Files = append(c.Files, signatures[i].file(r, r.Source(), typeNames, quoted))
	}
	return nil
}

// translate lets the server put words into its own terms: types into its names for them, names into quotes
// where one is a keyword.
func (s *postgresSession) translate(ctx context.Context, query string, words []string) (map[string]string, error) {
	rows, err := s.conn.Query(ctx, query, words)
	if err != nil {
		return nil, err
	}
	translated := map[string]string{}
	var from, to string
	_, err = pgx.ForEachRow(rows, []any{&from, &to}, func() error {
		translated[from] = to
		return nil
	})
	return translated, err
}

// walTimeline tells which form of the routine timeline should be there. The functions run with the rights of
// the owner, so it is the owner for whom they have to work.
func (s *postgresSession) walTimeline(ctx context.Context, c *Catalogue, timeline Timeline) (bool, error) {
	row, installed := c.Ledger["timeline"]
	mayAct := c.Schema == nil || c.Schema.MayAct
	if installed && (timeline == TimelineInstalled || !mayAct) {
		return row.File != "postgres/timeline_none.sql", nil
	}
	attempt := func() error {
		if c.Schema != nil && c.Schema.MayAct && c.Schema.Owner != c.User {
			if _, err := s.conn.Exec(ctx, "SET LOCAL ROLE "+pgx.Identifier{c.Schema.Owner}.Sanitize()); err != nil {
				return err
			}
		}
		_, err := s.conn.Exec(ctx, `SELECT system_identifier FROM pg_catalog.pg_control_system();
SELECT pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) WHERE NOT pg_catalog.pg_is_in_recovery()`)
		if err == nil {
			// Takes SET LOCAL ROLE back as well.
			return errProbed
		}
		return err
	}
	err := savepoint(ctx, s.conn, attempt)
	if errors.Is(err, errProbed) {
		return true, nil
	}
	switch kind := KindOf(explain(ctx, "", err)); kind {
	case KindInterrupted, KindOutcomeUnknown:
		return false, err
	}
	return false, nil
}

// errProbed ends a successful attempt whose effects are to be rolled back.
var errProbed = errors.New("the WAL functions work")
