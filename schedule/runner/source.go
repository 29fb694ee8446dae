package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/turns"
)

// Source supplies the entries of a step, in batch order. Every rank calls Next exactly once for each
// microbatch of its replica, even if its stages read no part of it. With one replica, that is M
// times. Next allocates only during the call, in the rank's space, and hands parts over with
// Entry.Put. It returns io.EOF at the end of the data; if that happens before M entries, the step
// fails with ErrShortBatch.
//
// A custom implementation of Source serves one rank. Several ranks can share a source returned by
// Indexed or Stream, or get one each through PerRank.
type Source[T any] interface {
	Next(ctx context.Context, entry batchctx.Entry[T]) error
}

// Shaped is an optional ability of a Source: Shape returns the shape class of a microbatch, as an
// index into Memory.Profile. It is called before the step begins. microbatch is its Entry.Index. The
// memory of the step is then planned for exactly these shapes. The sources of all ranks must agree.
type Shaped interface {
	Shape(microbatch int) int
}

// sharer is a Source that defines how the ranks of a process share it.
type sharer[T any] interface {
	// share begins a step of m microbatches of all replicas, on the ranks of this process.
	share(ranks, replicas, m int) error
	// forRank returns the source of a rank, numbered in the process.
	forRank(rank int) Source[T]
}

// share sets every rank's source for the next step, which has m microbatches.
func (r *Runner[T]) share(source Source[T], m int) error {
	s, ok := source.(sharer[T])
	if n := len(r.workers); ok {
		if err := s.share(n, r.cfg.Replicas.count(), m); err != nil {
			return err
		}
	} else if n > 1 {
		return fmt.Errorf("runner: %d ranks and a source for one (%T): make it with runner.Stream or runner.Indexed, or give each rank its own with runner.PerRank", n, source)
	}
	for i, w := range r.workers {
		if w.Source = source; ok {
			w.Source = s.forRank(i)
		}
	}
	return nil
}

// Indexed returns a source whose entries depend only on Entry.Index, not on earlier calls of fill.
// Ranks share the source: each rank calls fill for every entry, on its own goroutine and concurrently
// with the others, and may call it again for the same entry. Use Stream for data that is read in
// order, such as a file. Config.CheckSource finds a fill that breaks this contract.
func Indexed[T any](fill func(ctx context.Context, entry batchctx.Entry[T]) error) Source[T] {
	return &indexed[T]{fill}
}

type indexed[T any] struct {
	fill func(ctx context.Context, entry batchctx.Entry[T]) error
}

func (s *indexed[T]) Next(ctx context.Context, entry batchctx.Entry[T]) error {
	return s.fill(ctx, entry)
}

func (s *indexed[T]) share(int, int, int) error {
	if s.fill == nil {
		return errors.New("runner: the function of Indexed is nil")
	}
	return nil
}

func (s *indexed[T]) forRank(int) Source[T] { return s }

// PerRank combines one source for each rank of the process, in order, into the source of the process.
func PerRank[T any](sources ...Source[T]) Source[T] { return perRank[T](sources) }

type perRank[T any] []Source[T]

// Next is never called, because each rank has its own source.
func (p perRank[T]) Next(context.Context, batchctx.Entry[T]) error {
	return errors.New("runner: a PerRank within a PerRank: pass all sources to one PerRank")
}

func (p perRank[T]) share(ranks, replicas, m int) error {
	if len(p) != ranks {
		return fmt.Errorf("runner: PerRank has %d sources for %d ranks of this process", len(p), ranks)
	}
	for i, source := range p {
		if source == nil {
			return fmt.Errorf("runner: source %d of PerRank is nil", i)
		}
		if s, ok := source.(sharer[T]); ok {
			if err := s.share(1, replicas, m); err != nil {
				return err
			}
		}
		for k, other := range p[:i] {
			if kind := reflect.TypeOf(source); kind == reflect.TypeOf(other) && kind.Comparable() && source == other {
				return fmt.Errorf("runner: sources %d and %d of PerRank are the same (%T): to share a source, make it with runner.Stream or runner.Indexed and pass it without PerRank", k, i, source)
			}
		}
	}
	return nil
}

func (p perRank[T]) forRank(rank int) Source[T] {
	if s, ok := p[rank].(sharer[T]); ok {
		return s.forRank(0)
	}
	return p[rank]
}

// Stream returns a source of consecutive items that continues from step to step. Ranks share it: the
// rank that first needs an item makes it by calling next on its own goroutine, and every rank puts
// the item into its entry by calling put on its own goroutine. Ranks may read an item at the same
// time, so put must not change it. If next fails, for example with io.EOF, every rank returns the
// error when it needs that item. The source holds the items that some ranks have received and others
// have not. Items that a failed step has received are lost. The source makes an item for every
// microbatch of the batch, even for microbatches of replicas in other processes.
func Stream[T, E any](next func(ctx context.Context) (E, error), put func(item E, entry batchctx.Entry[T]) error) Source[T] {
	return &stream[T, E]{items: itemQueue[E]{next: next, making: make(chan struct{}, 1)}, put: put}
}

type stream[T, E any] struct {
	items itemQueue[E]
	put   func(item E, entry batchctx.Entry[T]) error
	ranks []streamReader[T, E]
}

// streamReader is one rank's view of the stream.
type streamReader[T, E any] struct {
	*stream[T, E]
	rank, replicas int
	m, next        int // the number of items in the step, and the rank's next item
}

// Next is never called, because each rank has a streamReader.
func (s *stream[T, E]) Next(context.Context, batchctx.Entry[T]) error {
	return errors.New("runner: a Stream is the source of a Step or an Evaluate: pass it there")
}

func (s *stream[T, E]) share(ranks, replicas, m int) error {
	if s.put == nil || s.items.next == nil {
		return errors.New("runner: a function of Stream is nil: pass next and put")
	}
	s.ranks = slices.Grow(s.ranks[:0], ranks)
	for rank := range ranks {
		s.ranks = append(s.ranks, streamReader[T, E]{stream: s, rank: rank, replicas: replicas, m: m})
	}
	s.items.begin(ranks)
	return nil
}

func (s *stream[T, E]) forRank(rank int) Source[T] { return &s.ranks[rank] }

func (s *streamReader[T, E]) Next(ctx context.Context, entry batchctx.Entry[T]) error {
	if s.replicas > 1 {
		if err := s.skip(ctx, entry.Index()); err != nil {
			return err
		}
	}
	item, err := s.items.take(ctx, s.rank)
	if err != nil {
		return err
	}
	s.next++
	if s.next+s.replicas > s.m { // the rank needs no further item of the batch, after which the next step begins
		if err := s.skip(ctx, s.m); err != nil {
			return err
		}
	}
	return s.put(item, entry)
}

// skip takes and ignores the items before a number, which belong to other replicas.
func (s *streamReader[T, E]) skip(ctx context.Context, number int) error {
	for ; s.next < number; s.next++ {
		if _, err := s.items.take(ctx, s.rank); err != nil {
			return err
		}
	}
	return nil
}

// itemQueue holds the items that some ranks have received and others have not.
type itemQueue[E any] struct {
	next   func(context.Context) (E, error)
	making chan struct{} // holds a token while an item is being made

	mu        sync.Mutex
	items     []E   // the oldest first
	first     int   // the number of the oldest item
	positions []int // by rank: the number of its next item
	err       error // the error that next returned
}

// begin sets every rank's next item to the first item that no rank has received.
func (s *itemQueue[E]) begin(ranks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.err = s.first+len(s.items), nil
	s.items = slices.Delete(s.items, 0, len(s.items))
	s.positions = slices.Grow(s.positions[:0], ranks)[:ranks]
	for rank := range s.positions {
		s.positions[rank] = s.first
	}
}

// take returns a rank's next item.
func (s *itemQueue[E]) take(ctx context.Context, rank int) (E, error) {
	item, made, err := s.takeMade(rank)
	if made || err != nil {
		return item, err
	}
	var none E
	if t := turns.Of(ctx); t != nil {
		t.Wait(func() bool { return len(s.making) == 0 || ctx.Err() != nil })
	}
	if ctx.Err() != nil { // select may choose either case
		return none, context.Cause(ctx)
	}
	select {
	case s.making <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { <-s.making }()
	if item, made, err = s.takeMade(rank); made || err != nil { // another rank has made the item in the meantime
		return item, err
	}
	item, err = s.next(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
		return none, err
	}
	s.items = append(s.items, item)
	return s.advance(rank), nil
}

// takeMade returns a rank's next item if it has already been made, or else the error that next
// returned, if any.
func (s *itemQueue[E]) takeMade(rank int) (item E, made bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.positions[rank] < s.first+len(s.items) {
		return s.advance(rank), true, nil
	}
	return item, false, s.err
}

// advance returns a rank's next item, and drops the items that every rank has received.
func (s *itemQueue[E]) advance(rank int) E {
	item := s.items[s.positions[rank]-s.first]
	s.positions[rank]++
	received := slices.Min(s.positions) - s.first
	s.items = slices.Delete(s.items, 0, received)
	s.first += received
	return item
}
