package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/turns"
)

// Source gives the entries of a step, in the order of the batch. Every rank calls Next exactly once
// for each microbatch of its replica, also if it reads nothing of it: M times without replicas.
// Next allocates only during the call, in the rank's space, and hands parts over with Entry.Put.
// io.EOF is the end of the data; before M entries it ends the step with ErrShortBatch.
//
// Your own type is a source for one rank. Several ranks share the source that Indexed or Stream
// returns, or get one each with PerRank.
type Source[T any] interface {
	Next(ctx context.Context, entry batchctx.Entry[T]) error
}

// Shaped is an optional ability of a Source: Shape returns the shape class of every microbatch,
// as an index into Memory.Profile, before the step begins. microbatch is the number of
// Entry.Index. The memory of the step is then planned for exactly these shapes. The sources of
// all ranks must agree.
type Shaped interface {
	Shape(microbatch int) int
}

// sharer is a Source that defines how the ranks of a process share it.
type sharer[T any] interface {
	// share begins a step of m microbatches, with the ranks of this process, of several replicas.
	share(ranks, replicas, m int) error
	// of returns the source of a rank, by its number in the process.
	of(rank int) Source[T]
}

// share gives every rank its source of the next step, of m microbatches.
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
			w.Source = s.of(i)
		}
	}
	return nil
}

// Indexed returns a source of entries that depend only on Entry.Index, not on earlier calls of
// fill. A rank makes the parts that it reads itself, and may be asked for them again. Ranks share
// the source: each calls fill on its own goroutine for every entry, concurrently with the others.
// Use Stream for data that is read in order, such as a file. Config.CheckSource finds a fill that
// breaks this contract.
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

func (s *indexed[T]) of(int) Source[T] { return s }

// PerRank returns the source of a process from one source for each of its ranks, in order.
func PerRank[T any](sources ...Source[T]) Source[T] { return perRank[T](sources) }

type perRank[T any] []Source[T]

// Next is never called: each rank has its own source.
func (p perRank[T]) Next(context.Context, batchctx.Entry[T]) error {
	return errors.New("runner: a PerRank within a PerRank")
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
				return fmt.Errorf("runner: sources %d and %d of PerRank are the same one (%T): to share one source, pass that of runner.Stream or runner.Indexed without PerRank", k, i, source)
			}
		}
	}
	return nil
}

func (p perRank[T]) of(rank int) Source[T] {
	if s, ok := p[rank].(sharer[T]); ok {
		return s.of(0)
	}
	return p[rank]
}

// Stream returns a source of items that follow each other, across steps. Ranks share it: the rank
// that needs an item first makes it by calling next on its own goroutine, and every rank puts the
// item into its entry by calling put on its own goroutine. Ranks may read an item at the same
// time, so put must not change it. Every rank receives an error of next, io.EOF too, when it
// comes to that item. The source holds the items that some ranks have received and others have
// not. Items that a failed step has received are lost. The item of every microbatch of the batch is
// made, also if the microbatch is another replica's.
func Stream[T, E any](next func(ctx context.Context) (E, error), put func(item E, entry batchctx.Entry[T]) error) Source[T] {
	return &stream[T, E]{items: shared[E]{next: next, making: make(chan struct{}, 1)}, put: put}
}

type stream[T, E any] struct {
	items shared[E]
	put   func(item E, entry batchctx.Entry[T]) error
	ranks []streamOf[T, E]
}

// streamOf is one rank's view of a stream.
type streamOf[T, E any] struct {
	*stream[T, E]
	rank, replicas int
	m, next        int // items of the step, and the number of the item that the rank takes next
}

// Next is never called: each rank has a streamOf.
func (s *stream[T, E]) Next(context.Context, batchctx.Entry[T]) error {
	return errors.New("runner: a Stream that no step has begun")
}

func (s *stream[T, E]) share(ranks, replicas, m int) error {
	if s.put == nil || s.items.next == nil {
		return errors.New("runner: a function of Stream is nil: it takes next and put")
	}
	s.ranks = slices.Grow(s.ranks[:0], ranks)
	for rank := range ranks {
		s.ranks = append(s.ranks, streamOf[T, E]{stream: s, rank: rank, replicas: replicas, m: m})
	}
	s.items.begin(ranks)
	return nil
}

func (s *stream[T, E]) of(rank int) Source[T] { return &s.ranks[rank] }

func (s *streamOf[T, E]) Next(ctx context.Context, entry batchctx.Entry[T]) error {
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
	if s.next+s.replicas > s.m { // it was the last: the next step begins behind the batch
		if err := s.skip(ctx, s.m); err != nil {
			return err
		}
	}
	return s.put(item, entry)
}

// skip takes the items before a number, which are other replicas'.
func (s *streamOf[T, E]) skip(ctx context.Context, number int) error {
	for ; s.next < number; s.next++ {
		if _, err := s.items.take(ctx, s.rank); err != nil {
			return err
		}
	}
	return nil
}

// begin sets every rank's next item to the first one that no rank has received.
func (s *shared[E]) begin(ranks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.count, s.err = s.first+s.count, 0, nil
	clear(s.items)
	s.at = slices.Grow(s.at[:0], ranks)[:ranks]
	for rank := range s.at {
		s.at[rank] = s.first
	}
}

// shared is a stream that ranks read at their own pace.
type shared[E any] struct {
	next   func(context.Context) (E, error)
	making chan struct{} // holds a token while an item is made

	mu    sync.Mutex
	items []E // a ring
	first int // the number of the oldest item that is held
	count int
	at    []int // by rank: the number of its next item
	err   error // at the end of the items
}

// take returns a rank's next item.
func (s *shared[E]) take(ctx context.Context, rank int) (E, error) {
	item, there, err := s.held(rank)
	if there || err != nil {
		return item, err
	}
	var none E
	if t := turns.Of(ctx); t != nil {
		t.Wait(func() bool { return len(s.making) == 0 || ctx.Err() != nil })
	}
	if ctx.Err() != nil { // select may choose either
		return none, context.Cause(ctx)
	}
	select {
	case s.making <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { <-s.making }()
	if item, there, err = s.held(rank); there || err != nil { // another rank has made it in the meantime
		return item, err
	}
	item, err = s.next(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
		return none, err
	}
	s.push(item)
	return s.pass(rank), nil
}

// held returns a rank's next item if it is there, or the error at the end.
func (s *shared[E]) held(rank int) (item E, there bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[rank] < s.first+s.count {
		return s.pass(rank), true, nil
	}
	return item, false, s.err
}

// push adds an item. The ring grows to the largest distance between the ranks.
func (s *shared[E]) push(item E) {
	if s.count == len(s.items) {
		items := make([]E, max(2*len(s.items), 8))
		for n := s.first; n < s.first+s.count; n++ {
			items[n%len(items)] = s.items[n%len(s.items)]
		}
		s.items = items
	}
	s.items[(s.first+s.count)%len(s.items)] = item
	s.count++
}

// pass moves a rank past its next item, and drops the items that every rank has received.
func (s *shared[E]) pass(rank int) E {
	item := s.items[s.at[rank]%len(s.items)]
	s.at[rank]++
	for s.count > 0 && slices.Min(s.at) > s.first {
		var none E
		s.items[s.first%len(s.items)] = none
		s.first++
		s.count--
	}
	return item
}
