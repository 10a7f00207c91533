package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/client"
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
func clean(ctx context.Context, session client.Session, names names, note func(string)) error {
	rights := []client.Right{{Object: "lease_status", Privilege: client.MaySelect}}
	for _, table := range ownTables() {
		rights = append(rights, client.Right{Object: table, Privilege: client.MayDelete}, client.Right{Object: table, Privilege: client.MaySelect})
	}
	lacking, err := client.Lacking(ctx, session, rights...)
	if err != nil {
		return failed("look for the rights to clean up", err)
	}
	if len(lacking) == 0 {
		return deleteRows(ctx, session, names)
	}
	return removeResources(ctx, session, names, note)
}

func deleteRows(ctx context.Context, session client.Session, names names) error {
	tx, err := session.Begin(ctx)
	if err != nil {
		return failed("delete the rows", err)
	}
	if err := deleteWithin(ctx, tx, names); err != nil {
		tx.Rollback(ctx)
		return failed("delete the rows", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return failed("delete the rows", err)
	}
	return nil
}

func deleteWithin(ctx context.Context, tx client.Transaction, names names) error {
	// Workers are gone, but the server may still be rolling back what one of them had begun.
	if err := tx.BoundLockWait(ctx, 5*time.Second); err != nil {
		return err
	}
	for _, table := range ownTables() {
		if err := tx.Delete(ctx, table, client.Among("resource", names.resources()...)); err != nil {
			return err
		}
	}
	return nil
}

// removeResources calls fence.remove for each resource, and says what stays.
func removeResources(ctx context.Context, session client.Session, names names, note func(string)) error {
	var kept []string
	removed := false
	for _, resource := range names.resources() {
		outcome, err := removeResource(ctx, session, names, resource)
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
func removeResource(ctx context.Context, session client.Session, names names, resource string) (outcome string, err error) {
	procs := session.Procedures()
	now, err := leaseStatus(ctx, session, resource)
	if errors.Is(err, errNoLease) {
		return procedures.NotFound, nil
	}
	if err != nil {
		return "", failed("read the lease of "+resource, err)
	}
	if now.State == "live" {
		if _, err := procs.Release(ctx, procedures.Token{Resource: resource, Owner: *now.Owner, Generation: now.Generation}); err != nil {
			return "", failed("release "+resource, err)
		}
	}
	r, err := procs.Remove(ctx, procedures.InterveneParams{Resource: resource, Generation: now.Generation, By: names.of("clean-up")})
	if err != nil {
		return "", failed("remove "+resource, err)
	}
	return r.Outcome, nil
}
