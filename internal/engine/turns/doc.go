// Package turns lets a simulation choose which goroutine of a step runs next, so that a run depends
// only on a seed and not on Go's scheduler. Outside of tests no context carries Turns, and Go
// schedules the goroutines.
package turns

import "context"

// Turns schedules the ranks of a process, and the goroutines that they start: one of them runs at a
// time.
type Turns interface {
	// Begin adds a rank, on the goroutine of its step, and returns when its first turn begins.
	Begin(rank int)
	// Wait ends the turn of the caller and returns when its next turn begins. The caller gets a turn
	// only if ready returns true, or is nil. ready is called while no goroutine runs.
	Wait(ready func() bool)
	// Go runs f on a goroutine that takes turns until f returns.
	Go(f func())
}

type key struct{}

// With returns a context whose steps are scheduled by t.
func With(ctx context.Context, t Turns) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the Turns of a context, or nil.
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

// Receive receives from a buffered channel, which must not be closed. t may be nil.
func Receive[T any](t Turns, from <-chan T) T {
	if t != nil {
		t.Wait(func() bool { return len(from) > 0 })
	}
	return <-from
}
