package deploy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

func unfit(hint, format string, args ...any) error {
	return &Error{Kind: engine.KindUnfit, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func notPermitted(hint, format string, args ...any) error {
	return &Error{Kind: engine.KindNotPermitted, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// checkSchema refuses a schema that is not ours, and one that this user cannot work in.
func checkSchema(script engine.Script, c *engine.Catalogue) error {
	s := c.Schema
	switch {
	case s == nil:
		return nil
	case !s.Ours && !s.Empty:
		return unfit("rename it, or use another database. If it is fencectl's, restored without its mark: "+script.MarkByHand(),
			"there is a schema named fence that is not fencectl's: it is not empty, and does not carry the mark \"fencectl\"")
	case !s.MayAct:
		return notPermitted(fmt.Sprintf("run as %q, or as a member of it: %s", s.Owner, script.ActFor(s.Owner, c.User)),
			"the schema fence belongs to %q, and %q may not act for it", s.Owner, c.User)
	}
	return checkOwners(script, c)
}

// checkOwners refuses to replace what belongs to somebody else than the schema: half of it would fail.
func checkOwners(script engine.Script, c *engine.Catalogue) error {
	var mend []string
	for _, d := range ownerDifferences(script, c) {
		mend = append(mend, d.Mend)
	}
	if len(mend) == 0 {
		return nil
	}
	return notPermitted(strings.Join(mend, "\n"), "%d objects of the fence do not belong to the schema's owner %q", len(mend), c.Schema.Owner)
}

// checkRelations refuses a database that lost something that its migrations made: routines and grants would
// fail on it.
func checkRelations(c *engine.Catalogue, p *plan, objects []engine.Relation) error {
	if len(p.migrations) > 0 {
		return nil
	}
	var missing []string
	for _, d := range relationDifferences(p.script, c, objects) {
		if d.Kind == DifferenceMissing {
			missing = append(missing, d.Object)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return unfit("fencectl verify tells how to mend each", "missing, although its migration is applied: %s", strings.Join(missing, ", "))
}

// checkRights refuses before anything is touched what would fail in the middle.
func checkRights(c *engine.Catalogue, p *plan, roles Roles) error {
	if p.createSchema && !c.CanCreateSchema {
		return notPermitted(p.script.AllowSchema(c.Database, c.User),
			"%q may not create a schema in database %q", c.User, c.Database)
	}
	if len(p.roles) == 0 {
		return nil
	}
	sql := p.script.CreateRolesByHand(p.roles)
	if roles == RolesExisting {
		return unfit(sql, "%d roles are missing: %s", len(p.roles), strings.Join(p.roles, ", "))
	}
	if !c.CanCreateRole {
		return notPermitted(sql, "%q may not create the roles that are missing (%s): a user who may has to run this",
			c.User, strings.Join(p.roles, ", "))
	}
	return nil
}

// checkVersions refuses a database that a newer program has migrated.
func checkVersions(script engine.Script, c *engine.Catalogue, all []migration) error {
	for _, applied := range c.Applied {
		if !slices.ContainsFunc(all, func(m migration) bool { return m.version == applied.Version }) {
			return unfit("use that version of fencectl, or a later one",
				"the database is at migration %d, which this fencectl does not know: a newer one was here (newest known: %d)",
				applied.Version, all[len(all)-1].version)
		}
	}
	if !c.Readable {
		return notPermitted("run as the owner of the schema, or "+script.Join("fence_reader", c.User),
			"%q may not read which migrations are applied", c.User)
	}
	return nil
}

// checkTarget refuses a version that this program does not know.
func checkTarget(to int64, all []migration) error {
	if to == 0 || slices.ContainsFunc(all, func(m migration) bool { return m.version == to }) {
		return nil
	}
	return &Error{Kind: engine.KindUsage, Message: fmt.Sprintf("there is no migration %d: the versions are %d to %d", to, all[0].version, all[len(all)-1].version)}
}

// maximumFloor leaves room for numbers above it; raise_floor has the same limit.
const maximumFloor = int64(1) << 62

func (o MigrateOptions) validate(all []migration) error {
	switch o.Roles {
	case "", RolesCreate, RolesExisting:
	default:
		return &Error{Kind: engine.KindUsage, Message: fmt.Sprintf("unknown value %q for roles: create or existing", o.Roles)}
	}
	if o.Floor != nil && (*o.Floor < 0 || *o.Floor > maximumFloor) {
		return &Error{Kind: engine.KindUsage, Message: fmt.Sprintf("invalid floor %d: allowed are 0 to %d", *o.Floor, maximumFloor)}
	}
	if o.LockTimeout < 0 {
		return &Error{Kind: engine.KindUsage, Message: "the lock timeout must not be negative"}
	}
	return checkTarget(o.To, all)
}

// existingRoles returns those of our roles that exist, in our order.
func existingRoles(c *engine.Catalogue) []string {
	names := []string{}
	for _, role := range procs.Roles() {
		if _, exists := c.Roles[role.Name]; exists {
			names = append(names, role.Name)
		}
	}
	return names
}
