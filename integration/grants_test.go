package integration

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/procs"
)

// grantRights TEMPORARY until deploy
func grantRights(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var b strings.Builder
	b.WriteString("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fence FROM PUBLIC;")
	for _, r := range procs.Roles() {
		b.WriteString("DO $$ BEGIN CREATE ROLE " + r.Name + "; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;")
		b.WriteString("GRANT USAGE ON SCHEMA fence TO " + r.Name + ";")
		for _, f := range r.Routines {
			b.WriteString("GRANT EXECUTE ON FUNCTION fence." + f + " TO " + r.Name + ";")
		}
		for _, f := range r.Views {
			b.WriteString("GRANT SELECT ON fence." + f + " TO " + r.Name + ";")
		}
	}
	_, err = conn.Exec(ctx, b.String())
	return err
}
