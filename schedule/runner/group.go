package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// GroupConfig says what the ranks of one process run. Ranks and, for more than one,
// Copy must be set.
type GroupConfig[T any] struct {
	// Ranks are the configurations by rank. All have the same stages, placement, parts
	// and losses; Space is each rank's own, and Gradients where they belong to it. What
	// plans are made of is taken from the first one. The group sets Rank and Transport.
	Ranks []Config[T]
	// Capacity, Copy and Stall are those of LinksConfig.
	Capacity int
	Copy     func(from, to int, h T) (T, error)
	Stall    time.Duration
}

// Group runs the ranks of one process, each on a goroutine of its own, over links
// between them. It is for one goroutine, one step at a time.
type Group[T any] struct {
	runners []*Runner[T]
	links   *Links[T]
	running atomic.Bool
}

// NewGroup returns a group, or every fault of its configuration.
func NewGroup[T any](cfg GroupConfig[T]) (*Group[T], error) {
	ranks := len(cfg.Ranks)
	if ranks == 0 {
		return nil, errors.New("runner: a group of no ranks")
	}
	links, err := NewLinks(LinksConfig[T]{Ranks: ranks, Capacity: cfg.Capacity, Copy: cfg.Copy, Stall: cfg.Stall})
	if err != nil {
		return nil, err
	}
	g := &Group[T]{links: links, runners: make([]*Runner[T], ranks)}
	var faults []error
	for rank, c := range cfg.Ranks {
		c.Rank, c.Transport = rank, links.Rank(rank)
		if placed := c.placement().Ranks; placed != ranks {
			faults = append(faults, fmt.Errorf("runner: rank %d of %d has a placement for %d", rank, ranks, placed))
			continue
		}
		if g.runners[rank], err = New(c); err != nil {
			faults = append(faults, fmt.Errorf("runner: rank %d of %d: %w", rank, ranks, err))
			continue
		}
		if first := &cfg.Ranks[0]; !slices.Equal(c.Parts, first.Parts) || !slices.Equal(c.Losses, first.Losses) ||
			!slices.Equal(c.placement().Rank, first.placement().Rank) {
			faults = append(faults, fmt.Errorf("runner: rank %d has other parts, losses or stages than rank 0", rank))
		} else if c.Templates != first.Templates || c.Templates != nil && c.LookAhead != first.LookAhead {
			faults = append(faults, fmt.Errorf("runner: rank %d has other templates or another look-ahead than rank 0: memory is planned for all ranks at once", rank))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for _, r := range g.runners {
		r.planner = g.runners[0].planner
	}
	return g, nil
}

// Rank returns the runner of a rank, to be asked between steps.
func (g *Group[T]) Rank(rank int) *Runner[T] { return g.runners[rank] }

// NextStep returns the number of the next training step.
func (g *Group[T]) NextStep() int64 { return g.runners[0].NextStep() }

// SetScaleExponent sets Config.ScaleExponent of every rank. Not while a step runs.
func (g *Group[T]) SetScaleExponent(exponent int) error {
	if g.running.Load() {
		return ErrBusy
	}
	for _, r := range g.runners {
		if err := r.SetScaleExponent(exponent); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the group. It holds nothing between steps, no goroutine either.
func (g *Group[T]) Close() error {
	if g.running.Load() {
		return ErrBusy
	}
	for _, r := range g.runners {
		if err := r.Close(); err != nil {
			return err
		}
	}
	return g.links.Close()
}

// Step trains on m microbatches, m >= 1, with a source for each rank. It returns when
// every rank is done. An error of one rank ends all of them, and everything that any
// of them held is released. A panic on a rank does too, and is then thrown again as a
// *Panic.
func (g *Group[T]) Step(ctx context.Context, m int, sources []Source[T]) (*Result, error) {
	return g.run(ctx, schedule.Training, m, sources)
}

// Evaluate runs m microbatches forward only.
func (g *Group[T]) Evaluate(ctx context.Context, m int, sources []Source[T]) (*Result, error) {
	return g.run(ctx, schedule.ForwardOnly, m, sources)
}

// Prepare is that of a Runner, for the ranks of the group.
func (g *Group[T]) Prepare(ctx context.Context, m int, sources []Source[T]) (*layout.Plan, error) {
	if g.running.Load() {
		return nil, ErrBusy
	}
	var first Source[T]
	if len(sources) > 0 {
		first = sources[0]
	}
	return g.runners[0].Prepare(ctx, m, first)
}

// Panic is what a group's step panics with where a rank has panicked.
type Panic struct {
	Rank  int
	Value any    // of the rank's panic
	Stack []byte // of the rank's goroutine
}

// Error is what the runtime prints: the value, and the stack of the rank.
func (p *Panic) Error() string {
	return fmt.Sprintf("runner: rank %d panicked: %v\n\n%s", p.Rank, p.Value, p.Stack)
}

// Unwrap returns the value where it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// ending is how a rank's step has ended.
type ending struct {
	result   *Result
	err      error
	returned bool
	panicked *Panic
}

func (g *Group[T]) run(ctx context.Context, mode schedule.Mode, m int, sources []Source[T]) (*Result, error) {
	if !g.running.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	defer g.running.Store(false)
	if len(sources) != len(g.runners) {
		return nil, fmt.Errorf("runner: %d sources for %d ranks", len(sources), len(g.runners))
	}
	for rank, r := range g.runners {
		if err := r.ready(mode, sources[rank]); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	endings := make([]ending, len(g.runners))
	var ranks sync.WaitGroup
	for rank, r := range g.runners {
		ranks.Go(func() {
			e := &endings[rank]
			defer func() {
				if value := recover(); value != nil {
					e.panicked = &Panic{Rank: rank, Value: value, Stack: debug.Stack()}
				}
				if e.result == nil { // so that stages of other ranks learn of it as well
					cancel(g.links.failure())
				}
			}()
			e.result, e.err = r.run(ctx, mode, m, sources[rank])
			e.returned = true
		})
	}
	ranks.Wait()
	return g.outcome(endings)
}

// outcome is what the group's step comes to: a panic on any rank, the end of a rank's
// goroutine, the error that was the first, or the result.
func (g *Group[T]) outcome(endings []ending) (*Result, error) {
	for i := range endings {
		if endings[i].panicked != nil {
			panic(endings[i].panicked)
		}
	}
	for i := range endings {
		if !endings[i].returned {
			runtime.Goexit()
		}
	}
	first, cause := endings[0].err, g.links.failure()
	for i := range endings {
		err := endings[i].err
		if err == nil {
			continue
		}
		if err == cause {
			return nil, err
		}
		if first == nil || errors.Is(err, cause) && !errors.Is(first, cause) {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return endings[0].result, nil
}
