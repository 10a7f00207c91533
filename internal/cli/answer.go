package cli

import (
	"slices"

	"github.com/fencectl/fencectl/internal/procedures"
)

// answer prints the row that a routine answered with. Every outcome that is not one of the good ones is a
// refusal, also a word that this program does not know: a newer database must not be taken to have agreed.
func (a *app) answer(row any, outcome string, reason *string, good ...string) error {
	if err := a.printRow(row); err != nil {
		return err
	}
	if slices.Contains(good, outcome) {
		return nil
	}
	if reason != nil {
		a.advise(nextStep(*reason))
	}
	return refusal{outcome}
}

// advise tells a person what a refusal calls for. Programs have the reason.
func (a *app) advise(text string) {
	if !a.output.isJSON() && text != "" {
		a.note("%s", text)
	}
}

func nextStep(reason string) string {
	switch reason {
	case procedures.NotFound:
		return "not_found: this database has no such resource; check its name and the database"
	case procedures.Superseded:
		return "superseded: another acquisition took over; stop this work, and acquire again to redo it"
	case procedures.AheadOfIssuer:
		return "ahead_of_issuer: this database never gave out that generation; its history was lost, or the token is from elsewhere"
	case procedures.WrongOwner:
		return "wrong_owner: that generation belongs to somebody else"
	case procedures.WasReleased:
		return "released: this acquisition was given back; acquire again"
	case procedures.Expired:
		return "expired: the lease had run out; renew it in time, or ask for a longer --ttl"
	case procedures.StaleSource:
		return "stale_source: the data is older than --max-source-age; read it again"
	case procedures.KeyConflict:
		return "key_conflict: this operation key was used for another content; use a new one"
	}
	return ""
}

// withID adds the id of a call to its error; refusals and mistakes in the command line need none.
func withID(err error, id *named) error {
	switch err.(type) {
	case nil, refusal, *usageError:
		return err
	}
	id.error = err
	return id
}
