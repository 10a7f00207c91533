package integration

import (
	"slices"
	"testing"
)

// TestConformance holds every engine of this run to the contract. The package comment tells how to read, run
// and extend it.
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

// that makes a behaviour, which is not run where an engine lacks one of the capabilities that it needs.
func that(name string, holds func(*Database), needs ...capability) behaviour {
	return behaviour{name: name, holds: holds, needs: needs}
}

// A chapter is a part of the contract.
type chapter struct {
	name       string
	behaviours []behaviour
}

// contract is what every engine must do, in the order in which a newcomer would want to know it.
func contract() []chapter {
	return []chapter{
		{"leases", leases()},
		{"publish", publishing()},
		{"check and require", fencedWrites()},
		{"refusals at once", refusalsAtOnce()},
		{"refusals after waiting", refusalsAfterWaiting()},
		{"diagnose", diagnoses()},
		{"clock", clock()},
		{"nobody starves", nobodyStarves()},
		{"retries", retries()},
		{"numbering", numbering()},
		{"the caller's transaction", callersTransactions()},
		{"old snapshots", oldSnapshots()},
		{"counting", counting()},
		{"pruning", pruning()},
		{"arguments", arguments()},
	}
}

// The lease decides when another may take over; the generation decides whose write counts.
func leases() []behaviour {
	return []behaviour{
		that("the first lease of a name has generation 1", firstLease),
		that("a lease is held until it runs out", heldUntilRunOut),
		that("a lease that was released is free at once", releasedIsFree),
		that("a take-over supersedes the owner before, whatever that one calls", takeOverSupersedes),
		that("a lease that ran out still counts until somebody takes over", expiredStillCounts),
		that("who holds a lease tells the others what it said of itself", attributesOfHolder),
		that("leases of different names have nothing to do with one another", namesAreIndependent),
		that("a lease is judged by the clock, not by the start of the transaction", clockNotTransactionStart),
		that("about says which contract is spoken", saysWhatItIs),
		that("lease_status shows every state", statusShowsStates),
		that("a grant is durable although the session does not wait for its commits",
			grantsAreDurable, looseCommits, directSessions),
		that("of 64 clients who want a new name at once exactly one gets it", oneOfMany, serverLog),
		that("clients of different names never wait for one another",
			differentNamesDoNotWait, serverLog, directSessions),
	}
}

// An accepted publish is the current result of its resource. Reasons have an order: what the fence says comes
// first, and how old the source is has nothing to do with the fence.
func publishing() []behaviour {
	return []behaviour{
		that("each accepted publish is the next revision and the current result", publishCounts),
		that("revisions go on over a take-over", revisionsGoOn),
		that("a publish in time is not late", publishInTime),
		that("a publish after the lease ran out is accepted, late, and kept as late", publishLate),
		that("a publish after the lease ran out is refused while unexpired", publishExpired),
		that("a source that is too old is refused, one from the future is new", freshness),
		that("the age of a source is judged by the clock after the wait", freshnessAfterTheWait),
		that("the fence comes before expiry, expiry before staleness, staleness before the key", orderOfReasons),
		that("publish then release does both in one commit", publishThenRelease),
		that("publish then release that is refused releases nothing", refusedPublishReleasesNothing),
		that("payloads of every size and kind come back as they were", keepsPayloads),
		that("the content type is what the caller says", keepsContentType),
		that("a publish that is rolled back leaves nothing", rolledBackPublishLeavesNothing),
		that("a publish does not end the lease", publishKeepsLease),
	}
}

// check and require make the caller's own writes part of the fence: until its transaction ends, nobody takes over.
func fencedWrites() []behaviour {
	return []behaviour{
		that("what the caller writes after check commits before any take-over", writesBeforeTakeOver),
		that("what the caller would write after a take-over is refused, and rolled back with require", requireUndoes),
		that("require says why, in message and detail, and leaves no record", requireSaysWhy),
		that("rolling back to a savepoint before check gives the lock back", savepointGivesLockBack),
		that("rolling back to a savepoint after check keeps the lock", savepointKeepsLock),
		that("check in autocommit is advice: it holds nothing", checkInAutocommit),
		that("check changes nothing", checkChangesNothing),
	}
}

// A refusal is never a bare no: it has a reason, which is proven, and shows what the decision saw. What the plain
// read proves is answered at once, whoever holds the rows: every reason, for every call that can give it.
//
//	not_found        never acquired, or removed
//	superseded       a higher generation was given out
//	ahead_of_issuer  this generation never was
//	wrong_owner      it was, to somebody else
//	released         it was given back
//	expired          policy unexpired: the lease has run out
func refusalsAtOnce() []behaviour {
	return slices.Concat(refusalsOfTokens(), refusalsByTheClock())
}

// The token was good when it was read, and was decided about while the row was waited for: every event that can
// come between, for every call; and none of them has an effect when it is rolled back. Reasons that are missing
// here cannot be reached: docs/semantics.md has the proof.
func refusalsAfterWaiting() []behaviour {
	return slices.Concat(refusalsAfterEvents(), refusalsAfterRemoval())
}

// diagnose explains a refusal that it did not decide, and names a cause only where the row proves it: every cell
// of the table in docs/semantics.md, under both policies.
func diagnoses() []behaviour {
	return everyCell()
}

// All time is the database's, read after the last wait: a lease may run out, or be renewed, while its row is waited
// for, and who was waited for may only have locked the row, or have changed it and rolled back, or committed.
func clock() []behaviour {
	return slices.Concat(clockAfterTheWait(), []behaviour{
		that("an acquire that waited for a fenced transaction does not call a lease dead that was renewed meanwhile",
			acquireSeesRenewalBesideFencedTransaction),
		that("an acquire that waited for a renewal does not call that lease dead", acquireSeesRenewalItWaitedFor),
		that("an acquire that waited for a take-over takes over when that lease has run out as well",
			acquireSeesTheWinnerRunOut),
		that("an acquire that waited for the first lease of a name takes over when that has run out",
			acquireSeesTheFirstRunOut),
		that("an acquire that waited for a release takes the lease", acquireSeesRelease),
		that("an acquire that waited for a take-over is held by the winner", acquireSeesTheWinner),
		that("an acquire that waited for a first lease which was rolled back is the first",
			acquireAfterRolledBackFirst),
	})
}

// Who is told no, in a transaction that stays open, stands in nobody's way; a fenced transaction does not stop its
// own renewal; and one that stalls does not stop a take-over for ever.
func nobodyStarves() []behaviour {
	return slices.Concat(refusedCallersHoldNothing(), fencedTransactionsAreBounded(), []behaviour{
		that("a renewal that was overtaken while it waited lets the new holder work",
			func(db *Database) { overtakenRenewalLetsWork(db) }),
		that("a renewal that was overtaken while it waited is ended when it idles",
			func(db *Database) { endsWhenItIdles(overtakenRenewalLetsWork(db)) }, idleBound),
		that("an acquire that lost the race for a name lets the winner renew",
			func(db *Database) { lostAcquireLetsRenew(db) }),
		that("an acquire that lost the race for a name is ended when it idles",
			func(db *Database) { endsWhenItIdles(lostAcquireLetsRenew(db)) }, idleBound),
		that("two refused callers with the same token do not wait for one another", sameRefusalTwice, lockHints),
		that("a take-over gives up after five seconds, whatever longer the caller would wait",
			takeOverGivesUp, directSessions),
		that("seize, remove and raise_floor give up like a take-over", interventionsGiveUp),
		that("a floor of all gives up while an acquire is not committed", floorOfAllGivesUp, lockHints),
		that("lease_status names the session that a take-over waits for", statusNamesTheBlocker, namedBlockers),
	})
}

// A call whose first answer was lost may be repeated: it gets that answer, and has no second effect.
func retries() []behaviour {
	return []behaviour{
		that("acquire with its request id gets its generation and the lease as it is now", acquireReplaysLive),
		that("acquire with its request id changes nothing, whatever else it says", acquireReplayChangesNothing),
		that("acquire with its request id gets its generation after the lease ran out", acquireReplaysExpired),
		that("acquire with its request id gets its generation after the release", acquireReplaysReleased),
		that("acquire with its request id is a new request once superseded", acquireAfterSuperseded),
		that("acquire with its request id is a new request after a seizure", acquireAfterSeizure),
		that("acquire with another's request id is held", acquireOfAnotherOwner),
		that("acquire by the holder without the request id is held", acquireIsNotReentrant),
		that("acquire with its request id waits for nobody", acquireReplaysWithoutLock),
		that("acquire that overlaps its own first call gets that one's generation", acquireOverlapsItself),
		that("acquire that overlaps its own first call ever gets that one's generation", firstAcquireOverlapsItself),
		that("acquire with one request id from many clients is granted once", acquireFromManyClients),
		that("publish with its operation key gets the first revision and time", publishReplays),
		that("publish with the operation key of another payload is key_conflict", conflicts("another")),
		that("publish with the operation key of another content type is key_conflict",
			conflicts("{}", ofType("text/plain"))),
		that("publish with the operation key of another policy is key_conflict", conflicts("{}", whileUnexpired)),
		that("publish with the operation key of one that released nothing is key_conflict",
			conflicts("{}", thenRelease)),
		that("publish with its operation key is replayed after a take-over", publishReplaysAfterTakeOver),
		that("publish with its operation key is replayed after the lease ran out", publishReplaysAfterExpiry),
		that("publish with its operation key is replayed after its source went stale", publishReplaysStale),
		that("publish then release with its operation key is replayed after its release", publishReplaysAfterRelease),
		that("publish then release that overlaps its own first call is replayed", publishOverlapsItself),
		that("publish then release finds its first call although the release became visible while it read",
			publishReadsLeaseBeforeKey),
		that("publish that overlaps another of its operation key is key_conflict", publishOverlapsConflict),
		that("publish with its operation key waits for nobody", publishReplaysWithoutLock),
		that("publish with an old operation key is a new one in a new generation", publishInNewGeneration),
		that("publish that was refused is not remembered by its operation key", refusedPublishIsNotRemembered),
		that("publish that was rolled back is not remembered by its operation key", rolledBackPublishIsNotRemembered),
		that("publish with one operation key from many clients is accepted once", publishFromManyClients),
		that("release may be repeated", releaseReplays),
		that("release that is repeated after a take-over is superseded and leaves the new holder alone",
			releaseAfterTakeOver),
		that("renew may be repeated, shorten the lease and revive one that nobody took", renewRepeats),
		that("seize that is repeated gets the same generation", seizeReplays),
		that("seize by another operator is refused", seizeByAnother),
		that("seize that overlaps its own first call gets that one's generation", seizeOverlapsItself),
		that("remove that is repeated is removed", removeReplays),
		that("remove by another operator does not find it", removeByAnother),
		that("raise_floor that is repeated is unchanged", raiseFloorRepeats),
	}
}

// A generation is given out once, and later ones are higher, whatever happens in between.
func numbering() []behaviour {
	return []behaviour{
		that("every acquisition is one above the one before", oneAbove),
		that("an acquisition that was rolled back may be given out again", rolledBackNumber),
		that("a seizure takes a number", seizureTakesNumber),
		that("a seizure of a lease that ran out or was released takes a number", seizureOfTheDead),
		that("a seizure waits for a fenced transaction", seizureWaits),
		that("a name that was removed starts above its last number", aboveRemoved),
		that("a remove waits for a fenced transaction, and sees its renewal", removeWaits),
		that("remove forgets the lease, its publication and its keys", removeForgets),
		that("a placeholder may be removed again and again, and its floor stays", removesPlaceholder),
		that("a floor of a resource is for that one", floorOfOne),
		that("a floor of all is for every resource, old and new", floorOfAll),
		that("a floor does not supersede the holder", floorKeepsHolder),
		that("a floor of a resource waits for an acquire that is not committed", floorWaitsForAcquire("r")),
		that("a floor of all waits for an acquire that is not committed", floorWaitsForAcquire(""), lockHints),
		that("an acquire waits for a floor of its resource that is not committed", acquireWaitsForFloor("r")),
		that("an acquire waits for a floor of all that is not committed", acquireWaitsForFloor(""), lockHints),
		that("an acquire that waits for its row sees a floor of all raised meanwhile", acquireSeesFloorAfterItsWait),
		that("an acquire that waits for a remove of its name starts above it", acquireWaitsForRemove),
		that("a floor of a resource that waits for its removal is a new one", floorWaitsForRemove),
		that("no number is given out twice, and no older result replaces a newer one, under many clients",
			manyClients(readCommitted)),
		that("no number is given out twice, and no older result replaces a newer one, at REPEATABLE READ",
			manyClients(repeatableRead)),
		that("no number is given out twice, and no older result replaces a newer one, at SERIALIZABLE",
			manyClients(serializable)),
	}
}

// The routines work in whatever transaction the caller has, and never end it.
func callersTransactions() []behaviour {
	return slices.Concat(livesAtEveryLevel(), []behaviour{
		that("a whole life of a lease in autocommit", lifeInAutocommit),
	})
}

// Above READ COMMITTED a transaction sees the database as it was when it began. It gets no reason that is false by
// now: only those that are final once seen, or a request to retry; and no number twice.
func oldSnapshots() []behaviour {
	return snapshotsAtEveryLevel()
}

// Every refusal is kept with its cause, since different causes ask for different action.
func counting() []behaviour {
	return slices.Concat(everyRefusalIsKept(), []behaviour{
		that("repeats within a minute are counted in one row", countsRepeats),
		that("repeats after a minute begin another row", beginsAnotherRow),
		that("refusals that differ in token, call or reason are kept apart", keepsApart),
		that("a refusal in a transaction that is rolled back leaves nothing", rolledBackRefusal),
		that("a refusal while another of the same token is undecided is kept beside it", undecidedRefusal, lockHints),
		that("what is accepted, replayed, held or explained is no refusal", noRefusal),
		that("rejections_by_reason counts calls and resources by the hour", byReason),
		that("late publications are shown apart", showsLate),
	})
}

// Old records go, in batches; what a later call may still need stays.
func pruning() []behaviour {
	return []behaviour{
		that("old records of every kind go, young ones stay", pruneTakesOld),
		that("leases and current results stay, whatever their age", pruneKeepsLeases),
		that("operation keys stay while their generation may still publish", pruneKeepsLiveKeys),
		that("operation keys of a generation that is over go", pruneTakesDeadKeys),
		that("a call takes at most a batch of each kind", pruneInBatches),
		that("what somebody holds is left for the next time", pruneSkipsLocked, lockHints),
		that("a refusal that is still counted in stays", pruneKeepsCounting),
		that("prune beside publishers and refused callers neither fails nor deadlocks", pruneBesideTraffic),
	}
}

// Misuse is an error that names the argument, and comes before anything is looked at. Names mean the same on every
// engine.
func arguments() []behaviour {
	return slices.Concat(everyArgument(), []behaviour{
		that("publish refuses a limit on the age of a source whose age is not told", refusesAgeWithoutSource),
		that("a name with U+0000 is refused", refusesNul),
		that("every name that is fine is kept as it is, and differs from every other", keepsNames),
		that("names that look alike are different names", tellsNamesApart),
		that("a lease lasts for exactly the milliseconds asked for", lastsExactly),
	})
}
