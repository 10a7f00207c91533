package demo

import "github.com/fencectl/fencectl/internal/procedures"

// Calls that a worker is asked to make.
const (
	callConnect  = "connect"
	callAcquire  = "acquire"
	callRenew    = "renew"
	callPublish  = "publish"
	callCheck    = "check"
	callBegin    = "BEGIN"
	callCommit   = "COMMIT"
	callStall    = "stall"
	callContinue = "continue"
)

// Outcomes of calls that are no routine.
const (
	outcomeConnected = "connected"
	outcomeBegun     = "begun"
	outcomeCommitted = "committed"
	outcomeFailed    = "failed"
	outcomeStalled   = "stalled"
)

// command is a line that a worker reads. The connection string travels here, and not as an argument or in the
// environment, where other users could read it.
type command struct {
	Call        string `json:"call"`
	DSN         string `json:"dsn,omitempty"`
	Application string `json:"application,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Owner       string `json:"owner,omitempty"`
	Generation  int64  `json:"generation,omitempty"`
	TTLMS       int64  `json:"ttl_ms,omitempty"`
	Policy      string `json:"policy,omitempty"`
	Payload     string `json:"payload,omitempty"`
}

func (c command) token() procedures.Token {
	return procedures.Token{Resource: c.Resource, Owner: c.Owner, Generation: c.Generation}
}

// reply is a line that a worker writes: one for each command but "continue", in their order.
type reply struct {
	Outcome    string  `json:"outcome,omitempty"`
	Reason     *string `json:"reason,omitempty"`
	Generation *int64  `json:"generation,omitempty"`
	Revision   *int64  `json:"revision,omitempty"`
	LateMS     *int64  `json:"late_ms,omitempty"`
	// ObservedGeneration is the row's, where the call was refused.
	ObservedGeneration *int64 `json:"observed_generation,omitempty"`
	// TookMS is how long the call took.
	TookMS int64 `json:"took_ms"`
	// Fault is set when the call failed.
	Fault *fault `json:"fault,omitempty"`
}

// fault is a failed call, explained.
type fault struct {
	Kind     procedures.Kind `json:"kind"`
	Message  string          `json:"message"`
	SQLState string          `json:"sqlstate,omitempty"`
}

func newFault(err error) *fault {
	known := procedures.Classify(err)
	return &fault{Kind: known.Kind, Message: err.Error(), SQLState: known.SQLState}
}
