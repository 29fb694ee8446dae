package kernels

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/gemm"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// maxThreads is the maximum number of threads of a pool.
const maxThreads = 256

// Pool is a fixed number of threads for the operations of one or more devices. The caller of an
// operation computes too: a pool of n threads starts n-1 goroutines, its helpers, when it is
// created, and none during an operation. When an operation begins, it recruits helpers as long as
// fewer than n threads compute. Devices that share a pool, such as those of several ranks in a
// process, thus use at most n threads together, unless more than n of them compute at a time; a
// device never waits for a free thread.
//
// No result depends on the number of threads: an operation is divided into disjoint parts, and
// each element is computed as if there were only one part.
type Pool struct {
	threads int
	running atomic.Int32 // threads that compute or are about to
	calls   chan *crew
	quit    chan struct{}
	close   sync.Once
	helpers sync.WaitGroup
}

// NewPool starts the helpers. The caller owns the pool and must close it after the devices that
// use it. NewPool returns ErrValue unless threads is between 1 and 256.
func NewPool(threads int) (*Pool, error) {
	if err := validateThreads(threads); err != nil {
		return nil, fmt.Errorf("kernels: NewPool: %w", err)
	}
	return newPool(threads), nil
}

func newPool(threads int) *Pool {
	p := &Pool{threads: threads, calls: make(chan *crew, threads), quit: make(chan struct{})}
	for i := 1; i < threads; i++ {
		p.helpers.Go(func() { p.help(newWorker(i)) })
	}
	return p
}

func validateThreads(threads int) error {
	if threads < 1 || threads > maxThreads {
		return fmt.Errorf("%w: %d threads, want 1 to %d", ErrValue, threads, maxThreads)
	}
	return nil
}

// Cores returns the best number of threads for a single device: the number of cores that the
// process may use, counting only performance cores if the system distinguishes them.
func Cores() int { return cpufeature.Cores() }

// Threads returns the number of threads.
func (p *Pool) Threads() int { return p.threads }

// Close stops the helpers and waits for them. Devices that compute afterwards use only their
// own thread. A second call does nothing.
func (p *Pool) Close() {
	p.close.Do(func() { close(p.quit) })
	p.helpers.Wait()
}

// help is a helper's main loop.
func (p *Pool) help(w *worker) {
	for {
		c, ok := poll(p.calls)
		if !ok {
			select {
			case c = <-p.calls:
			case <-p.quit:
				return
			}
		}
		if c.work(w) {
			c.done <- struct{}{}
		}
		p.running.Add(-1)
	}
}

// poll waits for a message without blocking, for about as long as the system takes to wake a
// thread (about 100 microseconds), and lets other goroutines run meanwhile. The next operation, or
// the end of the current one, usually comes sooner.
func poll[T any](c <-chan T) (v T, ok bool) {
	const looks = 1024
	for range looks {
		select {
		case v = <-c:
			return v, true
		default:
			runtime.Gosched()
		}
	}
	return v, false
}

// recruit asks a helper to work for c if fewer threads are running than the pool has. It reports
// whether it has asked one.
func (p *Pool) recruit(c *crew) bool {
	for {
		n := p.running.Load()
		if int(n) >= p.threads {
			return false
		}
		if p.running.CompareAndSwap(n, n+1) {
			p.calls <- c // has room for every thread
			return true
		}
	}
}

// task is an operation that is divided into parts.
type task interface {
	// part computes one of several parts. It may run on any thread, concurrently with other
	// parts.
	part(i, parts int, w *worker)
}

// worker is the state of a thread while it computes a part.
type worker struct {
	index   int // 0 for the caller, less than the pool's number of threads for a helper; no two workers of an operation share an index
	product *gemm.Multiplier
	vector  vector.Set
}

func newWorker(index int) *worker {
	return &worker{index: index, product: gemm.New(vector.Portable)}
}

// use selects the instruction set with which w computes.
func (w *worker) use(i Instructions) {
	w.vector = i.level()
	w.product.Set = w.vector
}

// crew represents a device in its pool. It runs one operation at a time; the caller and its
// helpers take the operation's parts one by one. A helper that starts late works on the current
// operation, if any.
type crew struct {
	pool *Pool        // nil if the caller computes alone
	set  Instructions // never BestInstructions
	self *worker

	task  task
	turn  atomic.Uint64 // see take
	left  atomic.Int32  // parts that are not yet done
	done  chan struct{} // signalled by the helper that finished the last part
	fault atomic.Pointer[any]
}

// maxParts is the maximum number of parts of an operation.
const maxParts = 1<<16 - 1

func newCrew(pool *Pool, set Instructions) *crew {
	c := &crew{pool: pool, set: set, self: newWorker(0), done: make(chan struct{}, 1)}
	c.self.use(set)
	return c
}

// threads returns the number of threads that may compute at a time.
func (c *crew) threads() int {
	if c.pool == nil {
		return 1
	}
	return c.pool.threads
}

// run computes all parts of t, at most maxParts. If a part panics, run panics with the same value
// once the other parts are done.
func (c *crew) run(t task, parts int) {
	if c.threads() == 1 || parts == 1 {
		for i := range parts {
			t.part(i, parts, c.self)
		}
		return
	}
	c.task = t
	c.left.Store(int32(parts))
	c.turn.Store((c.turn.Load()>>32+1)<<32 | uint64(parts)<<16)

	c.pool.running.Add(1)
	for range parts - 1 {
		if !c.pool.recruit(c) {
			break
		}
	}
	if !c.work(c.self) {
		if _, ok := poll(c.done); !ok {
			<-c.done
		}
	}
	c.pool.running.Add(-1)
	c.task = nil
	if fault := c.fault.Swap(nil); fault != nil {
		panic(*fault)
	}
}

// work computes parts until none is left, and reports whether it finished the last one.
func (c *crew) work(w *worker) (last bool) {
	for {
		i, parts, ok := c.take()
		if !ok {
			return last
		}
		w.use(c.set)
		c.do(i, parts, w)
		last = c.left.Add(-1) == 0
	}
}

// take returns the next part and the number of parts; ok is false if no part is left. The upper half
// of turn holds the number of the operation; the lower half holds the number of parts and the next
// part, 16 bits each. Thus a successful compare-and-swap always takes a part of the current operation.
func (c *crew) take() (part, parts int, ok bool) {
	for {
		turn := c.turn.Load()
		all, next := uint16(turn>>16), uint16(turn)
		if next == all {
			return 0, 0, false
		}
		if c.turn.CompareAndSwap(turn, turn+1) {
			return int(next), int(all), true
		}
	}
}

// do computes a part. If the part panics, do recovers and records the panic.
func (c *crew) do(i, parts int, w *worker) {
	defer func() {
		if fault := recover(); fault != nil {
			kept := fault // allocated only in this case
			c.fault.CompareAndSwap(nil, &kept)
		}
	}()
	c.task.part(i, parts, w)
}
