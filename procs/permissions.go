package procs

// Role is a database role that migrate creates (or expects), without a login of its own.
type Role struct {
	// Name of the role, the same on every engine.
	Name string
	// Purpose in a few words, for docs and messages.
	Purpose string
	// Routines that it may execute.
	Routines []string
	// Views that it may read.
	Views []string
}

// Roles returns who may do what. No role may touch a table. docs/permissions.md shows the same as a table.
func Roles() []Role {
	return []Role{
		{
			Name:     "fence_worker",
			Purpose:  "services that take leases and publish",
			Routines: []string{"acquire", "renew", "release", "publish", "check", "require", "diagnose", "about"},
			Views:    []string{"deployment"},
		},
		{
			Name:     "fence_dispatcher",
			Purpose:  "delivers intents from the outbox",
			Routines: []string{"about"},
			Views:    []string{"deployment"},
		},
		{
			Name:     "fence_receiver",
			Purpose:  "destinations that check generation and key",
			Routines: []string{"about"},
			Views:    []string{"deployment"},
		},
		{
			Name:     "fence_reader",
			Purpose:  "dashboards and people who look",
			Routines: []string{"diagnose", "about"},
			Views: []string{
				"lease_status", "rejections", "rejections_by_reason", "publications", "late_publications", "deployment",
			},
		},
		{
			Name:     "fence_operator",
			Purpose:  "people who intervene",
			Routines: []string{"diagnose", "seize", "raise_floor", "remove", "prune", "about"},
			Views: []string{
				"lease_status", "rejections", "rejections_by_reason", "publications", "late_publications", "deployment",
			},
		},
	}
}
