package integration

import "testing"

// TestConformance holds every engine of this run to every behaviour. See the package comment for how to
// read, run and extend it.
func TestConformance(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e engine) {
		for _, chapter := range contract() {
			t.Run(chapter.name, func(t *testing.T) {
				t.Parallel()
				for _, b := range chapter.behaviours {
					t.Run(b.name, func(t *testing.T) {
						t.Parallel()
						behave(t, e, b)
					})
				}
			})
		}
	})
}

// A behaviour is one sentence of the contract and the proof that it holds.
type behaviour struct {
	name  string
	holds func(*Database)
	needs []capability
}

// A chapter is a part of the contract.
type chapter struct {
	name       string
	behaviours []behaviour
}

// contract is what every engine must do.
func contract() []chapter {
	return []chapter{
		{"leases", leases()},
		{"refusals at once", refusalsAtOnce()},
		{"refusals after waiting", refusalsAfterWaiting()},
		{"diagnose", diagnoses()},
		{"clock", clockAfterTheWait()},
		{"retries", retries()},
		{"publish", publishing()},
		{"check and require", fencedWrites()},
		{"nobody starves", nobodyStarves()},
		{"the caller's transaction", callersTransactions()},
		{"old snapshots", oldSnapshots()},
		{"numbering", numbering()},
		{"counting", counting()},
		{"pruning", pruning()},
		{"arguments", arguments()},
	}
}
