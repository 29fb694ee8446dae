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

// Source supplies the entries of a step, in batch order. Every rank calls Next once for each microbatch of its replica,
// even if its stages read no part of it. With one replica, that is M times. Config.CheckSource and Config.Audit add
// calls. Next allocates only during the call, in the rank's space, and hands parts over with Entry.Put. It returns
// io.EOF at the end of the data; if that happens before M entries, the step fails with ErrShortBatch.
//
// A source made by Indexed, IndexedShapes, Stream or PerRank serves all ranks of the process, which call
// Next on their own goroutines; Entry.Rank is the rank that calls. Any other source serves one rank.
type Source[T any] interface {
	Next(ctx context.Context, entry batchctx.Entry[T]) error
}

// Shaped is an optional interface of a Source: Shape returns the shape class of a microbatch, as an
// index into Memory.Profile. microbatch is its Entry.Index. The memory of the step is then planned for
// exactly these shapes. Prepare and every rank may call Shape, concurrently, for any microbatch of the
// batch before the step begins. The ranks compare a hash of the shapes: their sources must agree.
// IndexedShapes makes such a source.
type Shaped interface {
	Shape(microbatch int) int
}

// multiRank is a Source that serves several ranks. begin begins a step for the given number of ranks of this process,
// starting with rank first, counted over all replicas.
type multiRank interface {
	begin(first, ranks int, b *batch) error
}

// share sets the ranks' source for the next step.
func (r *Runner[T]) share(source Source[T], b *batch) error {
	if source == nil {
		return errors.New("runner: the source is nil")
	}
	if s, ok := source.(multiRank); ok {
		if err := s.begin(r.cfg.Topology.First, len(r.workers), b); err != nil {
			return err
		}
	} else if n := len(r.workers); n > 1 {
		return fmt.Errorf("runner: %d ranks and a source for one (%T): make it with runner.Stream or runner.Indexed, or give each rank its own with runner.PerRank", n, source)
	}
	for _, w := range r.workers {
		w.calls.Source = source
	}
	return nil
}

// ofRank returns the source of the i-th rank of this process: the rank's own source, or nil if it has none, if source is
// made by PerRank, and source itself otherwise.
func ofRank[T any](source Source[T], i int) Source[T] {
	if p, ok := source.(*perRank[T]); ok {
		if i >= len(p.sources) {
			return nil
		}
		return ofRank(p.sources[i], 0)
	}
	return source
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

func (s *indexed[T]) begin(int, int, *batch) error {
	if s.fill == nil {
		return errors.New("runner: the function of Indexed is nil")
	}
	return nil
}

// IndexedShapes is Indexed with the shape class of each entry; see Shaped.
func IndexedShapes[T any](fill func(ctx context.Context, entry batchctx.Entry[T]) error, shape func(microbatch int) int) Source[T] {
	return &indexedShapes[T]{indexed[T]{fill}, shape}
}

type indexedShapes[T any] struct {
	indexed[T]
	shape func(microbatch int) int
}

func (s *indexedShapes[T]) Shape(microbatch int) int { return s.shape(microbatch) }

// PerRank combines one source for each rank of the process, in order, into the source of the process.
func PerRank[T any](sources ...Source[T]) Source[T] { return &perRank[T]{sources: sources} }

type perRank[T any] struct {
	sources []Source[T]
	first   int // the rank of the first source
}

func (p *perRank[T]) Next(ctx context.Context, entry batchctx.Entry[T]) error {
	i := entry.Rank() - p.first
	if i < 0 || i >= len(p.sources) {
		return errors.New("runner: a PerRank within another source: pass it to Step or Evaluate")
	}
	return p.sources[i].Next(ctx, entry)
}

func (p *perRank[T]) begin(first, ranks int, b *batch) error {
	p.first = first
	if len(p.sources) != ranks {
		return fmt.Errorf("runner: PerRank has %d sources for %d ranks of this process", len(p.sources), ranks)
	}
	for i, source := range p.sources {
		if source == nil {
			return fmt.Errorf("runner: source %d of PerRank is nil", i)
		}
		if s, ok := source.(multiRank); ok {
			if err := s.begin(first+i, 1, b); err != nil {
				return err
			}
		}
		for k, other := range p.sources[:i] {
			if kind := reflect.TypeOf(source); kind == reflect.TypeOf(other) && kind.Comparable() && source == other {
				return fmt.Errorf("runner: sources %d and %d of PerRank are the same (%T): to share a source, make it with runner.Stream or runner.Indexed and pass it without PerRank", k, i, source)
			}
		}
	}
	return nil
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
	items    itemQueue[E]
	put      func(item E, entry batchctx.Entry[T]) error
	first    int // the first rank
	replicas int
	m        int   // the number of items in the step
	next     []int // the next item of each rank
}

func (s *stream[T, E]) begin(first, ranks int, b *batch) error {
	if s.put == nil || s.items.next == nil {
		return errors.New("runner: a function of Stream is nil: pass next and put")
	}
	if b.order != nil {
		return errors.New("runner: InOrder of a Stream, which is read in the order of the batch: use runner.Indexed")
	}
	if b.repeat.audits {
		return errors.New("runner: Config.Audit needs entries that can be made again, which those of a Stream cannot: use runner.Indexed")
	}
	s.first, s.replicas, s.m = first, b.replicas, b.m
	s.next = slices.Grow(s.next[:0], ranks)[:ranks]
	clear(s.next)
	s.items.begin(ranks)
	return nil
}

func (s *stream[T, E]) Next(ctx context.Context, entry batchctx.Entry[T]) error {
	rank := entry.Rank() - s.first
	if rank < 0 || rank >= len(s.next) {
		return errors.New("runner: a Stream within another source: pass it to Step or Evaluate")
	}
	if s.replicas > 1 {
		if err := s.skip(ctx, rank, entry.Index()); err != nil {
			return err
		}
	}
	item, err := s.items.take(ctx, rank)
	if err != nil {
		return err
	}
	s.next[rank]++
	if s.next[rank]+s.replicas > s.m { // the rank needs no further item of this batch, so it skips to the first item of the next step
		if err := s.skip(ctx, rank, s.m); err != nil {
			return err
		}
	}
	return s.put(item, entry)
}

// skip takes and ignores a rank's items before the one with the given number. They belong to other replicas.
func (s *stream[T, E]) skip(ctx context.Context, rank, number int) error {
	for ; s.next[rank] < number; s.next[rank]++ {
		if _, err := s.items.take(ctx, rank); err != nil {
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
