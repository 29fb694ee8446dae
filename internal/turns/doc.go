// Package turns lets a simulation choose which goroutine of a step runs next, so that a run depends
// only on a seed and not on Go's scheduler. Outside of tests no context carries Turns, and Go
// schedules the goroutines.
package turns

import "context"

// Turns are the turns that the ranks of a process take, and the goroutines that they start.
type Turns interface {
	// Begin joins a rank, on the goroutine of its step, and returns when it is its turn.
	Begin(rank int)
	// Wait ends the turn of the caller and returns when it has the next one, which it
	// gets only while ready returns true; a nil ready always is. ready is called while nothing
	// else runs.
	Wait(ready func() bool)
	// Go runs f on a goroutine that takes turns until f returns.
	Go(f func())
}

type key struct{}

// With returns a context whose steps take turns.
func With(ctx context.Context, t Turns) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the Turns of a context, nil where there are none.
func Of(ctx context.Context) Turns {
	t, _ := ctx.Value(key{}).(Turns)
	return t
}

// Go runs f on a goroutine, which takes turns if t is not nil.
func Go(t Turns, f func()) {
	if t == nil {
		go f()
	} else {
		t.Go(f)
	}
}

// Receive receives from a channel that has a buffer and is never closed. t may be nil.
func Receive[T any](t Turns, from <-chan T) T {
	if t != nil {
		t.Wait(func() bool { return len(from) > 0 })
	}
	return <-from
}
