package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

const (
	// longestPause between two tries of acquire --wait: a holder may release long before its lease runs out.
	longestPause = 10 * time.Second
	// busyPause is for a row that a transaction holds: nothing is known about the lease.
	busyPause = 100 * time.Millisecond
)

type acquireFlags struct {
	owner      string
	ttl        durationFlag
	wait       durationFlag
	requestID  string
	attributes string
}

// acquireAnswer is the row of acquire, with the request that it answers.
type acquireAnswer struct {
	procedures.AcquireResult
	// Busy tells that a transaction held the row: it counts as held, and nothing is known about the lease.
	Busy      bool      `json:"busy"`
	Resource  string    `json:"resource"`
	Owner     string    `json:"owner"`
	RequestID uuid.UUID `json:"request_id"`
}

func newAcquireCommand(a *app) *cobra.Command {
	f := acquireFlags{wait: durationFlag{allowZero: true}}
	cmd := &cobra.Command{
		Use:     "acquire [RESOURCE]",
		GroupID: groupLease,
		Short:   "Take the lease of a resource and get its next generation",
		Long: `Takes the lease of RESOURCE, if nobody holds it, and prints the generation: the number that renew, publish
and release want to see. Exit code 10 means that somebody else holds it, or that an open transaction does ("busy").

--wait tries until the limit, as often as the database says that it may help. Every try carries the same request
id, so that a grant whose answer was lost is found again ("replayed") instead of being waited for. Unless --timeout is
given, the command may take 30s longer than --wait.`,
		Example: `  fencectl acquire report:42 --owner "$(uname -n)-$$" --ttl 30s
  fencectl acquire report:42 --owner w1 --ttl 5m --wait 10s --attributes '{"job": 17}'
  generation=$(fencectl acquire report:42 --owner w1 --ttl 30s -o json | jq -e .generation) || exit`,
		Args: atMost(1),
	}
	addOwner(cmd, &f.owner)
	flags := cmd.Flags()
	flags.Var(&f.ttl, "ttl", "how long until another may take over, like 30s (required)")
	flags.Var(&f.wait, "wait", "how long to wait while somebody else holds it (default 0: one try)")
	flags.StringVar(&f.requestID, "request-id", "", "UUID of this request: repeated with it, the call gets the same generation (default: a new one)")
	flags.StringVar(&f.attributes, "attributes", "", "JSON object that others see while this owner holds the lease, up to 4096 bytes")
	usual := func() time.Duration { return defaultTimeout + f.wait.value }
	cmd.RunE = a.runWithin(usual, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return a.acquire(ctx, cmd, args, f)
	})
	return cmd
}

func (a *app) acquire(ctx context.Context, cmd *cobra.Command, args []string, f acquireFlags) error {
	params, err := a.acquireParams(cmd, args, f)
	if err != nil {
		return err
	}
	if a.timeout.given && a.timeout.value > 0 && f.wait.value >= a.timeout.value {
		return usagef("--wait %s does not fit into --timeout %s", f.wait.value, a.timeout.value)
	}
	err = a.withDatabase(ctx, func(db *database) error {
		answer, err := a.acquireWithin(ctx, db, params, f.wait.value)
		if err != nil {
			return err
		}
		return a.answerAcquire(answer)
	})
	return withID(err, &named{requestID: params.RequestID.String()})
}

func (a *app) acquireParams(cmd *cobra.Command, args []string, f acquireFlags) (p procedures.AcquireParams, err error) {
	if p.Resource, err = a.resource(args); err != nil {
		return p, err
	}
	if p.Owner, err = a.owner(cmd, f.owner); err != nil {
		return p, err
	}
	if !f.ttl.given {
		return p, usagef("missing --ttl: say how long until another may take over, like 30s")
	}
	p.TTLMS = f.ttl.ms()
	id := uuid.New()
	if cmd.Flags().Changed("request-id") {
		if id, err = uuid.Parse(f.requestID); err != nil {
			return p, usagef("--request-id %q is not a UUID", f.requestID)
		}
	}
	p.RequestID = &id
	if cmd.Flags().Changed("attributes") {
		if !json.Valid([]byte(f.attributes)) {
			return p, usagef("--attributes is not JSON")
		}
		p.Attributes = json.RawMessage(f.attributes)
	}
	return p, checkText("--attributes", f.attributes)
}

// acquireWithin tries until it has the lease, or until wait is over; a wait of 0 tries once.
func (a *app) acquireWithin(ctx context.Context, db *database, p procedures.AcquireParams, wait time.Duration) (acquireAnswer, error) {
	limit := time.Now().Add(wait)
	holder := ""
	for {
		answer, err := a.acquireOnce(ctx, db, p, time.Until(limit))
		left := time.Until(limit)
		if err != nil || answer.Outcome != procedures.Held || left <= 0 {
			return answer, err
		}
		if now := describeHolder(answer); now != holder {
			a.note("waiting up to %s: %s", left.Round(time.Millisecond), now)
			holder = now
		}
		if err := sleep(ctx, min(pause(answer, p.TTLMS)+jitter(), left)); err != nil {
			return answer, err
		}
	}
}

// pause is how long to wait before the next try: until the lease runs out, but no longer than a quarter of the
// lease that is asked for, since the holder may release it at any moment.
func pause(answer acquireAnswer, ttlMS int64) time.Duration {
	if answer.Busy {
		return busyPause
	}
	remaining := time.Duration(answer.RemainingMS) * time.Millisecond
	return min(remaining, time.Duration(ttlMS)*time.Millisecond/4, longestPause)
}

func (a *app) acquireOnce(ctx context.Context, db *database, p procedures.AcquireParams, left time.Duration) (acquireAnswer, error) {
	bound := time.Duration(0)
	if left > 0 {
		bound = max(left, time.Millisecond)
	}
	answer := acquireAnswer{Resource: p.Resource, Owner: p.Owner, RequestID: *p.RequestID}
	err := db.writeWithin(ctx, bound, func(procs procedures.Procedures) (err error) {
		answer.AcquireResult, err = procs.Acquire(ctx, p)
		return err
	})
	var call *callError
	if errors.As(err, &call) && !call.unknown && procedures.Classify(call.err).Kind == procedures.KindBusy {
		answer.Outcome, answer.Busy, err = procedures.Held, true, nil
	}
	return answer, err
}

func (a *app) answerAcquire(answer acquireAnswer) error {
	if err := a.answer(answer, answer.Outcome, nil, procedures.Acquired, procedures.Replayed); err != nil {
		if answer.Outcome == procedures.Held {
			a.advise(describeHolder(answer))
		}
		return err
	}
	if answer.Outcome == procedures.Replayed && answer.RemainingMS == 0 {
		a.note("this request was granted before, and its lease is over: a new request id asks for a new generation")
	}
	return nil
}

func describeHolder(answer acquireAnswer) string {
	if answer.Busy || answer.Holder == nil {
		return `an open transaction holds the row: "fencectl leases" shows which`
	}
	text := "held by " + *answer.Holder + " until " + answer.LeaseUntil.UTC().Format(timeLayout)
	if *answer.Holder == answer.Owner {
		text += " (that is you: renew it, or acquire with an owner of its own for each run)"
	}
	return text
}
