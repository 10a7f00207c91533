package demo

import (
	"fmt"
	"strconv"
)

// Actors of steps.
const (
	ActorA        = "A"
	ActorB        = "B"
	ActorDatabase = "database"
)

// Step is one thing that happened. Times are milliseconds.
type Step struct {
	Number int    `json:"step"`
	Scene  string `json:"scene"`
	// Actor is who acted: A, B, or the database, which tells what it holds.
	Actor string `json:"actor"`
	// Call is the routine, the signal, the statement or the view.
	Call    string  `json:"call"`
	Policy  *string `json:"policy"` // of publish and check
	Outcome string  `json:"outcome"`
	Reason  *string `json:"reason"`
	// Generation is the caller's, or the row's where the database is the actor.
	Generation *int64 `json:"generation"`
	// LateMS is how long after the lease's end it was accepted.
	LateMS *int64 `json:"late_ms"`
	// ObservedGeneration is the row's, as the refusal saw it.
	ObservedGeneration *int64 `json:"observed_generation"`
	// Operation and Occurrences belong to what the database counted: which calls were refused, and how often.
	Operation   *string `json:"operation"`
	Occurrences *int64  `json:"occurrences"`
	Resource    *string `json:"resource"`
	Owner       *string `json:"owner"`
	// PID is the process of the actor.
	PID *int `json:"pid"`
	// TookMS is how long the call took, as its caller saw it.
	TookMS *int64 `json:"took_ms"`
	// ElapsedMS is the time since the story began.
	ElapsedMS int64 `json:"elapsed_ms"`
	// Shows says what to see in it.
	Shows string `json:"shows"`
}

// result is the step's outcome and reason, for messages.
func (s Step) result() string {
	if s.Reason == nil {
		return s.Outcome
	}
	return s.Outcome + " " + *s.Reason
}

// Teller is told the story as it happens. An error ends it.
type Teller interface {
	// Scene begins a scene.
	Scene(title, text string) error
	// Step is told after the step.
	Step(Step) error
}

// Difference says that the story did not come out as it should.
type Difference struct {
	Step     Step
	Expected string
	Found    string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("step %d (%s: %s) differs: expected %s, found %s",
		d.Step.Number, d.Step.Actor, d.Step.Call, d.Expected, d.Found)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
