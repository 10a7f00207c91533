package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

const mendByMigrate = "fencectl migrate"

// Verify compares the database with what this program would install. It writes nothing. Differences are no
// error: look at VerifyResult.Clean.
func (d *Deployer) Verify(ctx context.Context) (VerifyResult, error) {
	result := VerifyResult{Differences: []Difference{}, Notes: []string{}}
	all, err := readMigrations(d.engine.Migrations())
	if err != nil {
		return result, err
	}
	err = d.engine.Read(ctx, func(ctx context.Context, r engine.Reader) error {
		c, err := r.Catalogue(ctx, engine.TimelineInstalled)
		if err != nil {
			return err
		}
		if err := checkReadable(d.engine.Script(), c); err != nil {
			return err
		}
		result.Installed = c.Installed()
		result.Differences = append(result.Differences, compare(d.engine, c, all)...)
		result.Notes = append(result.Notes, grantNotes(c)...)
		return nil
	})
	result.Clean = err == nil && len(result.Differences) == 0
	return result, err
}

// checkReadable refuses to call something fine, or missing, that this user may not see.
func checkReadable(script engine.Script, c *engine.Catalogue) error {
	if c.Readable {
		return nil
	}
	return notPermitted(script.Join("fence_reader", c.User), "%q may not read fence.deployment", c.User)
}

// compare lists the differences between the catalogue and what should be there.
func compare(e engine.Engine, c *engine.Catalogue, all []migration) []Difference {
	objects, script := e.Objects(), e.Script()
	if c.Schema == nil {
		return []Difference{{DifferenceMissing, "schema fence", "the schema", "nothing", mendByMigrate}}
	}
	if !c.Schema.Ours {
		return []Difference{{DifferenceUnexpected, "schema fence", "fencectl's schema, which carries the mark \"fencectl\"",
			"a schema with the comment " + fmt.Sprintf("%q", c.Schema.Comment), "rename it, or if it is fencectl's: " + script.MarkByHand()}}
	}
	differences := migrationDifferences(c, all)
	// What an older or newer version has looks different by right.
	if len(differences) == 0 {
		differences = append(differences, relationDifferences(script, c, objects)...)
		differences = append(differences, routineDifferences(c)...)
		differences = append(differences, roleDifferences(c)...)
		differences = append(differences, grantDifferences(script, c)...)
	}
	differences = append(differences, ownerDifferences(script, c)...)
	return append(differences, unknownDifferences(c, objects)...)
}

func migrationDifferences(c *engine.Catalogue, all []migration) []Difference {
	var differences []Difference
	for _, m := range all {
		if _, applied := c.AppliedVersion(m.version); !applied {
			differences = append(differences, Difference{DifferencePending, "migration " + m.name, "applied", "not applied", mendByMigrate})
		}
	}
	for _, applied := range c.Applied {
		if !slices.ContainsFunc(all, func(m migration) bool { return m.version == applied.Version }) {
			differences = append(differences, Difference{DifferenceUnexpected, fmt.Sprintf("migration %d", applied.Version),
				fmt.Sprintf("migrations up to %d", all[len(all)-1].version), "a migration of a newer fencectl", "use that version of fencectl"})
		}
	}
	return differences
}

func relationDifferences(script engine.Script, c *engine.Catalogue, objects []engine.Relation) []Difference {
	var differences []Difference
	for _, wanted := range objects {
		object := wanted.Kind + " fence." + wanted.Name
		found := c.Relation(wanted.Name)
		if found == nil || found.Kind != wanted.Kind {
			differences = append(differences, Difference{DifferenceMissing, object, wanted.Kind, "nothing", mendRelation(wanted)})
			continue
		}
		parts := []struct {
			what          string
			wanted, found []string
			mend          string
		}{
			{"columns", wanted.Columns, found.Columns, "undo the change by ALTER " + strings.ToUpper(wanted.Kind)},
			{"settings", wanted.Options, found.Options, alterOptions(wanted, *found)},
			{"indexes", wanted.Indexes, found.Indexes, indexMend(script, wanted, *found)},
		}
		for _, part := range parts {
			if !slices.Equal(part.wanted, part.found) {
				wantedOnly, foundOnly := without(part.wanted, part.found), without(part.found, part.wanted)
				differences = append(differences, Difference{DifferenceChanged, object + ", " + part.what,
					list(wantedOnly, part.wanted), list(foundOnly, part.found), part.mend})
			}
		}
	}
	return differences
}

func mendRelation(wanted engine.Relation) string {
	if wanted.Kind == "view" {
		return "create it; fencectl migrate --dry-run on an empty database prints the statement"
	}
	return "restore it from a backup, or take its migration back and apply it again: fencectl migrate down"
}

// list shows the entries that differ, or all of them where only the order does.
func list(differing, all []string) string {
	switch {
	case len(differing) > 0:
		return strings.Join(differing, ", ")
	case len(all) > 0:
		return strings.Join(all, ", ")
	}
	return "none"
}

// without returns the entries of a that b lacks.
func without(a, b []string) []string {
	var left []string
	for _, entry := range a {
		if !slices.Contains(b, entry) {
			left = append(left, entry)
		}
	}
	return left
}

func alterOptions(wanted, found engine.Relation) string {
	var statements []string
	if set := without(wanted.Options, found.Options); len(set) > 0 {
		statements = append(statements, fmt.Sprintf("ALTER %s fence.%s SET (%s);", strings.ToUpper(wanted.Kind), wanted.Name, strings.Join(set, ", ")))
	}
	var reset []string
	for _, option := range without(found.Options, wanted.Options) {
		name, _, _ := strings.Cut(option, "=")
		if !slices.ContainsFunc(wanted.Options, func(w string) bool { return strings.HasPrefix(w, name+"=") }) {
			reset = append(reset, name)
		}
	}
	if len(reset) > 0 {
		statements = append(statements, fmt.Sprintf("ALTER %s fence.%s RESET (%s);", strings.ToUpper(wanted.Kind), wanted.Name, strings.Join(reset, ", ")))
	}
	return strings.Join(statements, " ")
}

func indexMend(script engine.Script, wanted, found engine.Relation) string {
	var statements []string
	for _, definition := range without(wanted.Indexes, found.Indexes) {
		statements = append(statements, script.CreateIndex(wanted.Name, definition))
	}
	for _, definition := range without(found.Indexes, wanted.Indexes) {
		statements = append(statements, script.DropIndex(wanted.Name, definition)+" -- an index on a hot table makes renewals slower")
	}
	return strings.Join(statements, " ")
}

func routineDifferences(c *engine.Catalogue) []Difference {
	var differences []Difference
	for _, f := range c.Files {
		object := fileObject(f)
		found := c.Routine(f.Identity)
		if found == nil {
			differences = append(differences, Difference{DifferenceMissing, object, "as in " + f.File, "nothing", mendByMigrate})
			continue
		}
		row, known := c.Ledger[f.Name]
		switch {
		case !known:
			differences = append(differences, Difference{DifferenceChanged, object, "a row in the ledger", "none", mendByMigrate})
		case row.DefinitionHash != found.DefinitionHash:
			differences = append(differences, Difference{DifferenceChanged, object, "as migrate stored it on " + row.AppliedAt.UTC().Format("2006-01-02 15:04:05 UTC"),
				"changed by hand since", mendByMigrate})
		case row.FileHash != f.Hash || row.File != f.File:
			differences = append(differences, Difference{DifferencePending, object, "as in " + f.File + " of this fencectl", "as another version has it", mendByMigrate})
		}
		differences = append(differences, settingDifferences(f, *found)...)
	}
	for _, r := range c.Routines {
		if c.Managed(r.Name) && !slices.ContainsFunc(c.Files, func(f engine.File) bool { return f.Identity == r.Identity }) {
			differences = append(differences, Difference{DifferenceUnexpected, routineObject(r), "no other overload of our names, and no routine that is no longer ours",
				"an overload, or a routine of another version", mendByMigrate})
		}
	}
	return differences
}

// settingDifferences names what matters for safety, on top of the hash that says only that something differs.
func settingDifferences(f engine.File, found engine.Routine) []Difference {
	var differences []Difference
	add := func(what, expected, seen string) {
		if expected != seen {
			differences = append(differences, Difference{DifferenceChanged, fileObject(f) + ", " + what, expected, seen, mendByMigrate})
		}
	}
	security := map[bool]string{true: "SECURITY DEFINER", false: "SECURITY INVOKER"}
	volatile := map[bool]string{true: "VOLATILE", false: "not VOLATILE"}
	add("security", security[f.SecurityDefiner], security[found.SecurityDefiner])
	add("settings", list(f.Settings, nil), list(found.Settings, nil))
	add("volatility", volatile[f.Volatile], volatile[found.Volatile])
	add("language", f.Language, found.Language)
	return differences
}

func fileObject(f engine.File) string { return strings.ToLower(f.Kind) + " " + f.Identity }

// routineObject calls whatever is not a procedure a function: messages need no finer word.
func routineObject(r engine.Routine) string {
	if r.Kind == "PROCEDURE" {
		return "procedure " + r.Identity
	}
	return "function " + r.Identity
}

func roleDifferences(c *engine.Catalogue) []Difference {
	var differences []Difference
	for _, role := range procs.Roles() {
		found, exists := c.Roles[role.Name]
		switch {
		case !exists:
			differences = append(differences, Difference{DifferenceMissing, "role " + role.Name, "a role without login", "nothing", mendByMigrate})
		case found.Superuser:
			differences = append(differences, Difference{DifferenceChanged, "role " + role.Name, "no superuser", "a superuser",
				fmt.Sprintf("ALTER ROLE %s NOSUPERUSER;", role.Name)})
		}
	}
	return differences
}

func grantDifferences(script engine.Script, c *engine.Catalogue) []Difference {
	var differences []Difference
	missing, unexpected := compareGrants(script, c)
	for _, g := range missing {
		if !grantable(c, g) {
			continue // its object is missing, and reported as that
		}
		differences = append(differences, Difference{DifferenceMissing, grantObject(g), g.Privilege + " for " + g.Grantee, "not granted", mendByMigrate})
	}
	for _, g := range unexpected {
		found := g.Privilege + " for " + g.Grantee
		if g.Grantable {
			found += " with grant option"
		}
		differences = append(differences, Difference{DifferenceUnexpected, grantObject(g), "not granted", found, mendByMigrate})
	}
	return differences
}

// grantable tells whether the object of a grant and its role exist.
func grantable(c *engine.Catalogue, g engine.Grant) bool {
	_, role := c.Roles[g.Grantee]
	switch g.Kind {
	case "TABLE":
		return role && c.Relation(strings.TrimPrefix(g.Object, "fence.")) != nil
	case "FUNCTION", "PROCEDURE":
		return role && c.Routine(g.Object) != nil
	}
	return role
}

func grantObject(g engine.Grant) string {
	object := strings.ToLower(g.Kind) + " " + g.Object
	if g.Column != "" {
		object += ", column " + g.Column
	}
	return object
}

// grantNotes mention what somebody granted to another role by name: theirs to decide.
func grantNotes(c *engine.Catalogue) []string {
	var notes []string
	for _, g := range c.Grants {
		if !managedGrantee(g.Grantee) {
			notes = append(notes, fmt.Sprintf("%s on %s is granted to %q, which is none of our roles: kept", g.Privilege, grantObject(g), g.Grantee))
		}
	}
	return notes
}

// ownerDifferences: routines work with their owner's rights on the tables, so that all need one owner.
func ownerDifferences(script engine.Script, c *engine.Catalogue) []Difference {
	if c.Schema == nil || !c.Schema.Ours {
		return nil
	}
	var differences []Difference
	add := func(kind, object, owner string) {
		if owner != c.Schema.Owner {
			differences = append(differences, Difference{DifferenceChanged, strings.ToLower(kind) + " " + object + ", owner", c.Schema.Owner, owner,
				script.SetOwner(kind, object, c.Schema.Owner)})
		}
	}
	for _, r := range c.Relations {
		if r.Kind != "sequence" {
			add(strings.ToUpper(r.Kind), "fence."+r.Name, r.Owner)
		}
	}
	for _, r := range c.Routines {
		if c.Managed(r.Name) {
			add(r.Kind, r.Identity, r.Owner)
		}
	}
	return differences
}

// unknownDifferences lists what is in the schema and not ours.
func unknownDifferences(c *engine.Catalogue, objects []engine.Relation) []Difference {
	var differences []Difference
	for _, object := range foreignObjects(c, objects) {
		differences = append(differences, Difference{DifferenceUnexpected, object, "only objects of the fence", "an object that fencectl did not make",
			"move it to another schema, or drop it"})
	}
	return differences
}

func foreignObjects(c *engine.Catalogue, objects []engine.Relation) []string {
	var foreign []string
	for _, r := range c.Relations {
		if !slices.ContainsFunc(objects, func(o engine.Relation) bool { return o.Name == r.Name }) {
			foreign = append(foreign, r.Kind+" fence."+r.Name)
		}
	}
	for _, r := range c.Routines {
		if !c.Managed(r.Name) {
			foreign = append(foreign, routineObject(r))
		}
	}
	return append(foreign, c.Foreign...)
}
