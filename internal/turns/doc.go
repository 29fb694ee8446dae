// Package turns lets a simulation decide which rank of a step goes on, so that a run
// depends on a seed alone and not on the scheduler of Go. Outside of tests no context
// carries Turns, and every rank goes on by itself.
package turns

import "context"

// Turns are the turns that the ranks of a process take.
type Turns interface {
	// Begin joins a rank, on the goroutine of its step, and returns when it is its turn.
	Begin(rank int)
	// Wait ends the turn of the caller and returns when it has the next one, which it
	// gets only while ready returns true. ready is called while no rank runs.
	Wait(ready func() bool)
}

type key struct{}

// With returns a context whose steps take turns.
func With(ctx context.Context, t Turns) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the Turns of a context, nil where there are none.
func Of(ctx context.Context) Turns {
	t, _ := ctx.Value(key{}).(Turns)
	return t
}
