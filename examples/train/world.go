package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport/tcp"
)

// world is this process's part of a job of several processes: its ranks, and its ends of the
// transport. The stages of other ranks are on Null devices here, and nobody calls them.
//
// All processes train, the first one writes. Between steps they exchange what it needs: the
// memory log of their ranks, and at the end their weights, one tensor at a time.
type world struct {
	process, processes int
	first, count       int // ranks of this process
	ends               []*tcp.Endpoint[kernels.Buffer]
	mpi                mpiWorld                // nil over sockets
	waits              map[int][]time.Duration // by rank and the rank that it waited for, at the end of the run
	samples            []memory.Sample         // of the step, where another process writes them
	mu                 sync.Mutex              // of samples
	training           bool                    // a step of training runs: evaluations are not a part of the log
	own                kernels.Device          // of the first rank
	parts              []partAt                // the tensors of a checkpoint
}

// mpiWorld is a *mpi.World, where the program is built with MPI.
type mpiWorld interface {
	tcp.Network
	Process() (number, of int)
	Library() string
	Close() error
}

// partAt is a tensor on the device of a rank.
type partAt struct {
	rank   int
	buffer kernels.Buffer
}

// device is what a rank has.
type device interface {
	kernels.Compute
	All() iter.Seq[memory.Info]
}

// findWorld returns this process's place, nil where it is the only one. Flags win over the
// launcher.
func findWorld(ctx context.Context, o *options, getenv func(string) string) (*world, tcp.Config, error) {
	place, err := launch.Place{Token: getenv("WEIR_TOKEN")}, error(nil)
	if o.launcher != "none" {
		place, err = launch.Find(getenv)
	}
	cfg := tcp.Config{Address: cmp.Or(o.transport, place.Address), Token: place.Token, Insecure: o.insecure, Capacity: o.capacity}
	if o.transport == "" && place.Launcher != launch.Weir {
		for _, flag := range []string{"process", "processes", "tls", "insecure"} {
			if o.given[flag] {
				return nil, cfg, fmt.Errorf("-%s is for several processes: give -transport too, or start them with weir launch", flag)
			}
		}
		return nil, cfg, nil // whatever has started it, it is alone
	}
	if err != nil {
		return nil, cfg, fmt.Errorf("%w: mend it, or give -launcher none", err)
	}
	if o.transport == "launcher" {
		cfg.Address = place.Address
	}
	w := &world{process: place.Rank, processes: place.Size}
	if o.given["process"] {
		w.process = o.process
	}
	if o.given["processes"] {
		w.processes = o.processes
	}
	if o.transport == "mpi" {
		begin, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
		defer cancel()
		if w.mpi, err = startMPI(begin); ctx.Err() != nil {
			return nil, cfg, errBefore
		} else if err != nil {
			return nil, cfg, fmt.Errorf("-transport mpi: %w", err)
		}
		number, of := w.mpi.Process()
		if w.processes == 0 {
			w.process, w.processes = number, of
		} else if number != w.process || of != w.processes {
			return nil, cfg, fmt.Errorf("-transport mpi: this is process %d of %d, and %s says %d of %d: start it with the mpirun or srun of that library",
				w.process, w.processes, w.mpi.Library(), number, of)
		}
		cfg.Network, cfg.Address = w.mpi, "mpi:0:0"
		fmt.Fprintf(os.Stderr, "train: %s\n", w.mpi.Library())
	}
	switch {
	case w.processes < 1:
		return nil, cfg, errors.New("-transport: of how many processes? give -processes, or start them with weir launch")
	case w.process < 0 || w.process >= w.processes:
		return nil, cfg, fmt.Errorf("-process is %d of %d: processes count from 0", w.process, w.processes)
	case cfg.Address == "":
		return nil, cfg, errors.New("-transport: the launcher does not say where rank 0 is: give unix:PATH or tcp:HOST:PORT")
	case o.tls != "":
		if cfg.TLS, err = tcp.LoadTLS(o.tls); err != nil {
			return nil, cfg, fmt.Errorf("-tls: %w", err)
		}
	}
	if !o.given["ranks"] && o.fixed == nil && (o.resume == "" || o.ranks < w.processes) {
		o.ranks = w.processes
	}
	if o.ranks < w.processes {
		return nil, cfg, fmt.Errorf("%d ranks: give each of the %d processes one at least", o.ranks, w.processes)
	}
	w.first = w.process * o.ranks / w.processes
	w.count = (w.process+1)*o.ranks/w.processes - w.first
	fmt.Fprintf(os.Stderr, "train: %v; ranks %d to %d of %d, rank 0 at %s\n", place, w.first, w.first+w.count-1, o.ranks, cfg.Address)
	return w, cfg, nil
}

// leads reports whether this process writes what a run leaves behind. It is the only one, or
// the first.
func (w *world) leads() bool { return w == nil || w.process == 0 }

// has reports whether a rank is of this process.
func (w *world) has(rank int) bool { return w == nil || rank >= w.first && rank < w.first+w.count }

// join meets the other processes. They must agree on everything that decides what a step does.
func (t *trainer) join(ctx context.Context, cfg tcp.Config) error {
	w := t.world
	cfg.Ranks = t.opts.ranks
	if info, ok := debug.ReadBuildInfo(); ok {
		cfg.Facts = append(cfg.Facts, tcp.Fact{Name: "the version", Value: info.Main.Version + " " + info.GoVersion})
	}
	for _, name := range append([]string{"ranks", "stages", "plan", "group", "cap", "slices", "descending", "capacity", "recompute", "evaluate", "unplanned", "budget"}, deciding...) {
		cfg.Facts = append(cfg.Facts, tcp.Fact{Name: "-" + name, Value: t.opts.set.Lookup(name).Value.String()})
	}
	cfg.Facts = append(cfg.Facts, tcp.Fact{Name: "a folder of -checkpoint", Value: fmt.Sprint(t.opts.checkpoint != "")}, tcp.Fact{Name: "the number of processes", Value: fmt.Sprint(w.processes)}, tcp.Fact{Name: "the text", Value: t.data.sum},
		tcp.Fact{Name: "the step that the run begins with", Value: fmt.Sprint(t.first)}, tcp.Fact{Name: "the device", Value: t.devs[0].Name()})
	w.ends, w.own = make([]*tcp.Endpoint[kernels.Buffer], w.count), t.devs[0]
	faults := make([]error, w.count)
	var all sync.WaitGroup
	for i, dev := range t.devs {
		all.Go(func() {
			cfg := cfg
			cfg.Rank = w.first + i
			w.ends[i], faults[i] = tcp.Join(ctx, cfg, dev)
		})
	}
	all.Wait()
	if fault := errors.Join(faults...); fault != nil {
		if ctx.Err() != nil {
			return errBefore
		}
		return fault
	}
	if w.mpi != nil { // its launcher ends the job so when a process is dead, and gives it a moment
		context.AfterFunc(ctx, func() {
			for _, end := range w.ends {
				fmt.Fprintf(os.Stderr, "train: %v\n", end.Status())
			}
		})
	}
	return nil
}

// each calls f for every rank of this process at the same time, and returns the first error.
func (w *world) each(f func(i int, end *tcp.Endpoint[kernels.Buffer]) error) error {
	faults := make([]error, len(w.ends))
	var all sync.WaitGroup
	for i, end := range w.ends {
		all.Go(func() { faults[i] = f(i, end) })
	}
	all.Wait()
	return cmp.Or(faults...)
}

// exchange gives every process the bytes of all.
func (w *world) exchange(ctx context.Context, mine []byte) (all [][]byte, err error) {
	err = w.each(func(i int, end *tcp.Endpoint[kernels.Buffer]) error {
		brings := mine
		if i > 0 {
			brings = nil
		}
		got, err := end.Exchange(ctx, brings)
		if i == 0 {
			all = got
		}
		return err
	})
	return all, err
}

// ReduceTallies merges what the ranks of all processes have met.
func (w *world) ReduceTallies(ctx context.Context, tallies []fp8.Tally) error {
	mine, err := encode(tallies)
	if err != nil {
		return err
	}
	all, err := w.exchange(ctx, mine)
	if err != nil {
		return err
	}
	for rank, data := range all {
		var theirs []fp8.Tally
		if w.has(rank) || len(data) == 0 {
			continue
		}
		if err := decode(data, &theirs); err != nil || len(theirs) != len(tallies) {
			return fmt.Errorf("the tallies of rank %d: %d of %d: %w", rank, len(theirs), len(tallies), err)
		}
		for i := range tallies {
			tallies[i].Merge(theirs[i])
		}
	}
	return nil
}

// reducer is that of RollScales; nil where this process is alone.
func (t *trainer) reducer() fp8.Reducer {
	if t.world == nil {
		return nil
	}
	return t.world
}

// hooks are those of the metrics; a process that does not write keeps the samples for the one
// that does.
func (t *trainer) hooks() runner.Hooks {
	hooks := t.metrics.Hooks()
	if w := t.world; !w.leads() {
		hooks.Microbatch = func(s *memory.Sample) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.training {
				w.samples = append(w.samples, *s)
			}
		}
	}
	return hooks
}

// samplesAtOnce is how many samples a process brings to an exchange.
const samplesAtOnce = 4096

// runStep runs a step, and joins the memory logs of all processes.
func (t *trainer) runStep(ctx context.Context) (*runner.Result, error) {
	if t.world != nil {
		t.world.training = true
		defer func() { t.world.training = false }()
	}
	result, err := t.run.Step(ctx, t.opts.microbatches, t.train)
	for more := t.world != nil && err == nil; more && err == nil; {
		more, err = t.world.joinSamples(ctx, t.metrics.Hooks().Microbatch)
	}
	return result, err
}

// joinSamples brings samples to the process that writes them, and reports whether there are
// more.
func (w *world) joinSamples(ctx context.Context, write func(*memory.Sample)) (more bool, err error) {
	n := min(len(w.samples), samplesAtOnce)
	mine, err := encode(w.samples[:n])
	if err != nil {
		return false, err
	}
	w.samples = w.samples[:copy(w.samples, w.samples[n:])]
	all, err := w.exchange(ctx, mine)
	for rank, data := range all {
		var theirs []memory.Sample
		if len(data) > 0 && err == nil {
			err = decode(data, &theirs)
		}
		more = more || len(theirs) == samplesAtOnce
		for i := range theirs {
			if w.leads() && !w.has(rank) {
				write(&theirs[i])
			}
		}
	}
	return more, err
}

// ending is how the run has ended in a process.
type ending struct {
	Done        int
	Interrupted bool
	Failed      string
}

// settle makes all processes end the run in the same way: err is how this one has. If one
// has an error that the others do not know of, they end because of it.
func (w *world) settle(ctx context.Context, done int, err error, of error) error {
	mine := ending{Done: done, Interrupted: err != nil && ctx.Err() != nil}
	if err != nil && !mine.Interrupted && !w.consequence(err) {
		mine.Failed = err.Error()
	}
	if errors.As(err, new(*tcp.LostError)) {
		return err
	}
	data, fault := encode(mine)
	var all [][]byte
	for tries := 0; fault == nil; tries++ {
		began := w.each(func(_ int, end *tcp.Endpoint[kernels.Buffer]) error { return end.Begin(context.Background(), nil) })
		if began != nil {
			return cmp.Or(err, began)
		}
		if of != nil && tries == 0 { // the others may be in a step
			for _, end := range w.ends {
				end.Abort(of)
			}
			continue
		}
		var exchanged error
		if all, exchanged = w.exchange(context.Background(), data); exchanged == nil || tries == 3 {
			fault = exchanged
			break
		}
	}
	for rank, data := range all {
		var theirs ending
		if len(data) == 0 {
			continue
		}
		fault = cmp.Or(fault, decode(data, &theirs))
		switch {
		case theirs.Done != done:
			fault = cmp.Or(fault, fmt.Errorf("rank %d has done %d steps, this one %d", rank, theirs.Done, done))
		case theirs.Failed != "" && err == nil:
			err = &elsewhereError{rank, theirs.Failed}
		case theirs.Interrupted && (err == nil || w.consequence(err)):
			err = errInterrupted
		}
	}
	if err != nil && w.consequence(err) && !errors.As(err, new(*elsewhereError)) {
		err = &elsewhereError{-1, err.Error()}
	}
	return cmp.Or(fault, err)
}

// elsewhereError is the error of another process.
type elsewhereError struct {
	rank int
	text string
}

func (e *elsewhereError) Error() string {
	if e.rank < 0 {
		return e.text // which says where
	}
	return fmt.Sprintf("rank %d: %s", e.rank, e.text)
}

// consequence reports whether an error has come from another process, or from its end.
func (w *world) consequence(err error) bool {
	if remote, ok := errors.AsType[*tcp.RemoteError](err); ok && !w.has(remote.Rank) {
		return true
	}
	return elsewhere(err)
}

// elsewhere reports whether an error that ends the program began in another process.
func elsewhere(err error) bool {
	return errors.As(err, new(*tcp.LostError)) || errors.As(err, new(*elsewhereError))
}

// serve lends the tensors of this process to the one that writes, until it has all that it
// wants. In that one, the ranks besides the first only take part.
func (t *trainer) serve(ctx context.Context) error {
	w := t.world
	return w.each(func(i int, end *tcp.Endpoint[kernels.Buffer]) error {
		if w.leads() && i == 0 {
			return nil
		}
		for {
			all, err := end.Exchange(ctx, nil)
			if err != nil || len(all[0]) == 0 {
				return err
			}
			var number int
			if err := decode(all[0], &number); err != nil {
				return err
			}
			if p := w.parts[number]; p.rank == w.first+i {
				tag := runner.Tag{Content: runner.Total, Param: number}
				if err := end.Send(ctx, 0, tag, []kernels.Buffer{p.buffer}); err != nil {
					return err
				}
				if err := end.Wait(ctx, 0, tag); err != nil {
					return err
				}
			}
		}
	})
}

// fetching lets f read the weights of all ranks.
func (t *trainer) fetching(f func() error) error {
	if t.world == nil {
		return f()
	}
	served := make(chan error, 1)
	ctx := context.Background()
	go func() { served <- t.serve(ctx) }()
	if !t.world.leads() {
		return <-served
	}
	err := f()
	_, over := t.world.ends[0].Exchange(ctx, nil)
	return cmp.Or(err, over, <-served)
}

// remote is the device of a rank of another process: a Null device whose weights can be read
// while that process serves them.
type remote struct {
	*kernels.Null
	rank   int
	world  *world
	number map[kernels.Buffer]int
}

// ReadFloat32 fetches what a checkpoint has; all else is zero.
func (r *remote) ReadFloat32(dst []float32, src kernels.Buffer) error {
	number, known := r.number[src]
	if !known {
		return r.Null.ReadFloat32(dst, src)
	}
	ctx, end, own := context.Background(), r.world.ends[0], r.world.own
	mine, err := encode(number)
	if err != nil {
		return err
	}
	if _, err := end.Exchange(ctx, mine); err != nil {
		return err
	}
	h := make([]kernels.Buffer, 1)
	if err := end.Recv(ctx, r.rank, runner.Tag{Content: runner.Total, Param: number}, h); err != nil {
		return err
	}
	err = own.ReadFloat32(dst, h[0])
	_, released := own.Release(h[0])
	return cmp.Or(err, released)
}

// number numbers the tensors of a checkpoint, the same on all processes.
func (w *world) number(t *trainer) {
	for _, p := range t.parameters() {
		for c := range p.All() {
			rank := 0
			for t.ranks[rank] != c.Device {
				rank++
			}
			for _, part := range parts(p.Name, c) {
				if r, is := t.ranks[rank].(*remote); is {
					r.number[part.buffer] = len(w.parts)
				}
				w.parts = append(w.parts, partAt{rank, part.buffer})
			}
		}
	}
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

func decode(data []byte, value any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(value) }

// Close leaves the job.
func (w *world) Close() error {
	err := w.each(func(_ int, end *tcp.Endpoint[kernels.Buffer]) error {
		if end == nil {
			return nil // it has not joined
		}
		return end.Close()
	})
	if w.mpi != nil && w.ends != nil { // before that the others do not wait for the end of MPI
		err = cmp.Or(err, w.mpi.Close())
	}
	return err
}
