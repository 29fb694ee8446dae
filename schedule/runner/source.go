package runner

import (
	"context"
	"sync"

	batchctx "github.com/weir-ml/weir/context"
)

// Source gives the entries of a step, in the order of the batch: it is asked exactly M
// times, on every rank, also for microbatches of which the rank reads nothing. Where a
// plan runs several copies of the model, they take turns (schedule.Plan.Item). It allocates only within Next, in the rank's space, and hands over
// with Entry.Put. io.EOF says that there are no more; before M that ends the step
// with ErrShortBatch.
type Source[T any] interface {
	Next(ctx context.Context, entry *batchctx.Entry[T]) error
}

// Shaped is an optional ability of a Source: to tell the shape class of every microbatch
// before the step begins, by its number in Config.Templates. Microbatches are numbered as
// Entry.Microbatch does. The memory of the step is
// then planned for exactly these. The sources of all ranks tell the same.
type Shaped interface {
	Shape(microbatch int) int
}

// SourceFunc makes a Source of a function.
type SourceFunc[T any] func(ctx context.Context, entry *batchctx.Entry[T]) error

// Next calls f.
func (f SourceFunc[T]) Next(ctx context.Context, entry *batchctx.Entry[T]) error {
	return f(ctx, entry)
}

// Share returns a source for each rank of one step over one stream of items. Each
// item is made once, by next on the goroutine of the rank that comes first, and put
// into the entry of every rank, by put on the goroutine of that rank; one rank may
// read an item while another one does, so put must not change it. What next returns
// as an error, io.EOF too, every rank gets when it comes to that item. The sources
// hold the items that some rank has had and another one has not.
//
// The sources are for one step: the next one needs sources of its own, whether or not
// this one has read all of its items.
func Share[T, E any](ranks int, next func(ctx context.Context) (E, error), put func(rank int, item E, entry *batchctx.Entry[T]) error) []Source[T] {
	s := &shared[E]{next: next, making: make(chan struct{}, 1), at: make([]int, ranks)}
	sources := make([]Source[T], ranks)
	for rank := range sources {
		sources[rank] = SourceFunc[T](func(ctx context.Context, entry *batchctx.Entry[T]) error {
			item, err := s.take(ctx, rank)
			if err != nil {
				return err
			}
			return put(rank, item, entry)
		})
	}
	return sources
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
	select {
	case s.making <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { <-s.making }()
	if item, there, err = s.held(rank); there || err != nil { // another rank has made it meanwhile
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

// push adds an item. The ring grows to as many items as the ranks ever were apart.
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

// pass moves a rank on over its next item, and forgets the items that every rank has
// had.
func (s *shared[E]) pass(rank int) E {
	item := s.items[s.at[rank]%len(s.items)]
	s.at[rank]++
	for s.count > 0 && s.behind() {
		var none E
		s.items[s.first%len(s.items)] = none
		s.first++
		s.count--
	}
	return item
}

// behind reports whether every rank has had the oldest item.
func (s *shared[E]) behind() bool {
	for _, at := range s.at {
		if at <= s.first {
			return false
		}
	}
	return true
}
