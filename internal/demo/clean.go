package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/procedures"
)

// ownTables are the tables that hold rows of a resource, in the order in which their rows are locked.
func ownTables() []string {
	return []string{
		"lease", "lease_term", "publication", "publication_key", "late_publication", "rejection", "intervention",
	}
}

// clean takes the demo's rows away. A login that may delete from all the tables does just that. It is the one
// place where rows of fence.lease go without fence.remove: that would raise the floor of a database that is not
// ours, and these names, being random, never come again. Any other login removes the resources as an operator
// does, which leaves the records that only prune takes.
func clean(ctx context.Context, conn *pgx.Conn, names names, note func(string)) error {
	owner, err := mayDelete(ctx, conn)
	if err != nil {
		return err
	}
	if owner {
		return deleteRows(ctx, conn, names)
	}
	return removeResources(ctx, conn, names, note)
}

func mayDelete(ctx context.Context, conn *pgx.Conn) (yes bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT has_schema_privilege('fence', 'USAGE')
		       AND (SELECT bool_and(has_table_privilege('fence.' || name, 'DELETE')
		                            AND has_table_privilege('fence.' || name, 'SELECT'))
		              FROM unnest($1::text[]) AS name)`, ownTables()).Scan(&yes)
	if err != nil {
		return false, failed("look for the rights to clean up", err)
	}
	return yes, nil
}

func deleteRows(ctx context.Context, conn *pgx.Conn, names names) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Workers are gone, but the server may still be rolling back what one of them had begun.
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', '5s', true)"); err != nil {
			return failed("delete the rows", err)
		}
		for _, table := range ownTables() {
			name := pgx.Identifier{"fence", table}.Sanitize()
			if _, err := tx.Exec(ctx, "DELETE FROM "+name+" WHERE resource = ANY($1)", names.resources()); err != nil {
				return failed("delete the rows", err)
			}
		}
		return nil
	})
}

// removeResources calls fence.remove for each resource, and says what stays.
func removeResources(ctx context.Context, conn *pgx.Conn, names names, note func(string)) error {
	var kept []string
	removed := false
	for _, resource := range names.resources() {
		outcome, err := removeResource(ctx, conn, names, resource)
		switch {
		case err != nil && engine.KindOf(err) != engine.KindNotPermitted:
			return err
		case outcome == procedures.Removed:
			removed = true
		case outcome != procedures.NotFound:
			kept = append(kept, resource)
		}
	}
	if len(kept) > 0 {
		note(fmt.Sprintf("this login may not remove resources (fence_operator may): what stays is %s", strings.Join(kept, ", ")))
	}
	if removed {
		note("fence.remove has raised the global floor to the demo's highest generation, which does no harm")
	}
	note(fmt.Sprintf(`records under %s/ stay until "fencectl prune": refusals, late publications, removals`, names))
	return nil
}

// removeResource removes a resource, if it is there, and returns the outcome. A lease that is alive is released first.
func removeResource(ctx context.Context, conn *pgx.Conn, names names, resource string) (outcome string, err error) {
	procs := procedures.Postgres{DB: conn}
	now, owner, err := holder(ctx, conn, resource)
	if errors.Is(err, pgx.ErrNoRows) {
		return procedures.NotFound, nil
	}
	if err != nil {
		return "", failed("read the lease of "+resource, err)
	}
	if now.State == "live" {
		if _, err := procs.Release(ctx, procedures.Token{Resource: resource, Owner: owner, Generation: now.Generation}); err != nil {
			return "", failed("release "+resource, err)
		}
	}
	r, err := procs.Remove(ctx, procedures.InterveneParams{Resource: resource, Generation: now.Generation, By: names.of("clean-up")})
	if err != nil {
		return "", failed("remove "+resource, err)
	}
	return r.Outcome, nil
}

func holder(ctx context.Context, conn *pgx.Conn, resource string) (now status, owner string, err error) {
	err = conn.QueryRow(ctx,
		`SELECT state, generation, coalesce(owner, '') FROM fence.lease_status WHERE resource = $1`, resource).
		Scan(&now.State, &now.Generation, &owner)
	return now, owner, err
}
