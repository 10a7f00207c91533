package client

import (
	"context"
	"fmt"
)

// Right is what a user may do with an object of the schema fence.
type Right struct {
	Object    string
	Privilege Privilege
}

// Privilege is a kind of right.
type Privilege string

// Privileges.
const (
	MayExecute Privilege = "EXECUTE"
	MaySelect  Privilege = "SELECT"
	MayDelete  Privilege = "DELETE"
)

// Installed tells whether there is a fence in the session's database.
func Installed(ctx context.Context, s Session) (bool, error) { return s.installed(ctx) }

// Lacking returns those of the rights that the session's user does not have. On an object that is not there
// nobody has one.
func Lacking(ctx context.Context, s Session, rights ...Right) ([]Right, error) {
	var lacking []Right
	for _, right := range rights {
		has, err := s.may(ctx, right)
		if err != nil {
			return nil, err
		}
		if !has {
			lacking = append(lacking, right)
		}
	}
	return lacking, nil
}

func (s *postgresSession) installed(ctx context.Context) (bool, error) {
	return s.yes(ctx, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		                WHERE n.nspname = 'fence' AND p.proname = 'about')`)
}

func (s *postgresSession) may(ctx context.Context, right Right) (bool, error) {
	if right.Privilege == MayExecute {
		return s.yes(ctx, `
			SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
			                WHERE n.nspname = 'fence' AND p.proname = $1
			                  AND has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'))`, right.Object)
	}
	return s.yes(ctx, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		                WHERE n.nspname = 'fence' AND c.relname = $1
		                  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, $2))`, right.Object, string(right.Privilege))
}

func (s *postgresSession) yes(ctx context.Context, sql string, args ...any) (yes bool, err error) {
	err = s.conn.QueryRow(ctx, sql, args...).Scan(&yes)
	return yes, err
}

// installed looks for the schema: other names are shown only to those who have a right on them.
func (s *sqlServerSession) installed(ctx context.Context) (bool, error) {
	return s.yes(ctx, "SELECT CASE WHEN SCHEMA_ID(N'fence') IS NULL THEN 0 ELSE 1 END")
}

func (s *sqlServerSession) may(ctx context.Context, right Right) (bool, error) {
	return s.yes(ctx, fmt.Sprintf("SELECT COALESCE(HAS_PERMS_BY_NAME(N'fence.%s', N'OBJECT', N'%s'), 0)", right.Object, right.Privilege))
}

func (s *sqlServerSession) yes(ctx context.Context, sql string, args ...any) (bool, error) {
	var answer int
	err := s.conn.QueryRowContext(ctx, sql, args...).Scan(&answer)
	return answer == 1, err
}
