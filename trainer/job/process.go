package job

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Process is this process's part of a job of several processes: its ranks, and their transport
// endpoints. The nil Process is the whole job: this process has all ranks.
type Process struct {
	Processes    int
	First, Count int // this process's ranks, numbered across all replicas

	process  int
	ranks    int // number of ranks of all replicas, in all processes
	pipeline int // number of ranks of one replica
	meeting  tcp.Config
	ends     []*tcp.Endpoint[kernels.Buffer] // of the ranks of this process
	mpi      mpiWorld                        // nil over sockets
	say      func(line string)
	facts    func() []tcp.Fact       // facts of the job, at Join; nil for none
	waits    map[int][]time.Duration // by rank and awaited rank, at the end of the run
	samples  []memory.Sample         // samples of the step, at most maxSamples, if another process writes them
	mu       sync.Mutex              // guards samples
	training bool                    // whether a training step is running: the log excludes evaluations
}

// mpiWorld is implemented by *mpi.World, if the program is built with MPI.
type mpiWorld interface {
	tcp.Network
	Process() (number, of int)
	Library() string
	Close() error
}

// Device is the device of a rank.
type Device interface {
	kernels.Compute
	All() iter.Seq[memory.Info]
}

// Local is the device of a rank of this process.
type Local interface {
	Device
	transport.Codec[kernels.Buffer]
}

// Meet returns this process's part of a job, or nil if there is neither -transport nor weir launch, so that it is
// the only process. Flags take precedence over the launcher. If neither -ranks nor a file of a plan gives the
// number of ranks, it is that of the checkpoint that the run resumes, if this is enough for the processes, and
// otherwise one for each process. Messages for people are passed to say. Ranks do not connect until Join.
func (o *Options) Meet(ctx context.Context, getenv func(string) string, say func(line string)) (*Process, error) {
	place, err := launch.Rendezvous{Token: getenv("WEIR_TOKEN")}, error(nil)
	if o.Launcher != "none" {
		place, err = launch.Find(getenv)
	}
	if o.Transport == "" && place.Launcher != launch.Weir {
		for _, flag := range []string{"process", "processes", "tls", "insecure"} {
			if o.given[flag] {
				return nil, fmt.Errorf("-%s is for several processes: give -transport too, or start them with weir launch", flag)
			}
		}
		return nil, nil // another launcher may have started this process, but it is the only one
	}
	if err != nil {
		return nil, fmt.Errorf("%w: correct it, or give -launcher none", err)
	}
	w := &Process{process: place.Rank, Processes: place.Size, say: say}
	w.meeting = tcp.Config{Address: cmp.Or(o.Transport, place.Address), Token: place.Token, Insecure: o.Insecure, Sums: o.Sums, Capacity: o.Capacity}
	if o.Transport == "launcher" {
		w.meeting.Address = place.Address
	}
	if o.given["process"] {
		w.process = o.Process
	}
	if o.given["processes"] {
		w.Processes = o.Processes
	}
	if o.Transport == "mpi" {
		if err := w.startMPI(ctx); err != nil {
			return nil, fmt.Errorf("-transport mpi: %w", err)
		}
	}
	switch {
	case w.Processes < 1:
		return nil, errors.New("-transport: the number of processes is unknown: give -processes, or start them with weir launch")
	case w.process < 0 || w.process >= w.Processes:
		return nil, fmt.Errorf("-process is %d of %d: processes are numbered from 0", w.process, w.Processes)
	case w.meeting.Address == "":
		return nil, errors.New("-transport: the launcher does not provide the address of rank 0: give unix:PATH or tcp:HOST:PORT")
	case o.TLS != "":
		if w.meeting.TLS, err = tcp.LoadTLS(o.TLS); err != nil {
			return nil, fmt.Errorf("-tls: %w", err)
		}
	}
	if err := Number("replicas", o.Replicas, 1); err != nil {
		return nil, err
	}
	if !o.given["ranks"] && o.Fixed == nil && (o.Resume == "" || o.AllRanks() < w.Processes) {
		o.Ranks = (w.Processes + o.Replicas - 1) / o.Replicas
	}
	if o.AllRanks() < w.Processes {
		return nil, fmt.Errorf("-ranks %d and -replicas %d make %d ranks: give at least one for each of the %d processes", o.Ranks, o.Replicas, o.AllRanks(), w.Processes)
	}
	w.ranks, w.pipeline = o.AllRanks(), o.Ranks
	w.First = w.process * w.ranks / w.Processes
	w.Count = (w.process+1)*w.ranks/w.Processes - w.First
	say(fmt.Sprintf("%v; ranks %d to %d of %d, rank 0 at %s", place, w.First, w.First+w.Count-1, w.ranks, w.meeting.Address))
	return w, nil
}

// startMPI starts MPI. It returns an error if MPI reports a different position for this process
// than the flags or its launcher.
func (w *Process) startMPI(ctx context.Context) (err error) {
	begin, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("MPI did not start within a minute"))
	defer cancel()
	if w.mpi, err = startMPI(begin); err != nil {
		return err
	}
	number, of := w.mpi.Process()
	if w.Processes == 0 {
		w.process, w.Processes = number, of
	} else if number != w.process || of != w.Processes {
		return fmt.Errorf("this is process %d of %d, but %s says %d of %d: start it with the mpirun or srun of that library",
			w.process, w.Processes, w.mpi.Library(), number, of)
	}
	w.meeting.Network, w.meeting.Address = w.mpi, "mpi:0:0"
	w.say(w.mpi.Library())
	return nil
}

// Leads reports whether this process writes the run's outputs, which is the task of the first process.
func (w *Process) Leads() bool { return w == nil || w.process == 0 }

// Has reports whether this process has a rank.
func (w *Process) Has(rank int) bool { return w == nil || rank >= w.First && rank < w.First+w.Count }

// processOf returns the process of a rank.
func (w *Process) processOf(rank int) int {
	if w == nil {
		return 0
	}
	return ((rank+1)*w.Processes - 1) / w.ranks
}

// Join joins the other processes, which must agree on all facts. devs are the devices of this
// process's ranks.
func (w *Process) Join(ctx context.Context, devs []Local, facts ...tcp.Fact) error {
	if w == nil {
		return nil
	}
	if len(devs) != w.Count || w.Count == 0 {
		return fmt.Errorf("Join: %d devices for the %d ranks of this process: give one for each", len(devs), w.Count)
	}
	cfg := w.meeting
	if cfg.Ranks = w.ranks; w.ranks > w.pipeline {
		cfg.Pipeline = w.pipeline
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		cfg.Facts = append(cfg.Facts, tcp.Fact{Name: "the version", Value: info.Main.Version + " " + info.GoVersion})
	}
	if w.facts != nil {
		cfg.Facts = append(cfg.Facts, w.facts()...)
	}
	cfg.Facts = append(append(cfg.Facts, facts...), tcp.Fact{Name: "the number of processes", Value: fmt.Sprint(w.Processes)}, tcp.Fact{Name: "the device", Value: devs[0].Name()})
	w.ends = make([]*tcp.Endpoint[kernels.Buffer], w.Count)
	meeting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_ = w.each(func(i int, _ *tcp.Endpoint[kernels.Buffer]) (err error) {
		cfg := cfg
		cfg.Rank = w.First + i
		if w.ends[i], err = tcp.Join(meeting, cfg, devs[i]); err != nil {
			cancel(err) // the other ranks of this process need not wait for a job that is over
		}
		return err
	})
	if fault := context.Cause(meeting); fault != nil {
		return fault
	}
	if w.mpi != nil { // if a process has died, the launcher ends the job, but needs a moment to do so
		context.AfterFunc(ctx, func() {
			for _, end := range w.ends {
				w.say(end.Status().String())
			}
		})
	}
	return nil
}

// RunnerTopology returns the job's part of the configuration of this process's runner. It is the zero
// value if this process is the only one.
func (w *Process) RunnerTopology() runner.Topology[kernels.Buffer] {
	if w == nil {
		return runner.Topology[kernels.Buffer]{}
	}
	return runner.Topology[kernels.Buffer]{
		Ranks: w.pipeline, First: w.First,
		Transport: func(rank int) transport.Transport[kernels.Buffer] { return w.ends[rank-w.First] },
	}
}

// each calls f concurrently for every rank of this process, and returns the error of the lowest rank that has one.
func (w *Process) each(f func(i int, end *tcp.Endpoint[kernels.Buffer]) error) error {
	faults := make([]error, len(w.ends))
	var all sync.WaitGroup
	for i, end := range w.ends {
		all.Go(func() { faults[i] = f(i, end) })
	}
	all.Wait()
	return cmp.Or(faults...)
}

// exchange sends this process's bytes to all others, and returns the bytes of all processes, each at the index of
// the process's first rank.
func (w *Process) exchange(ctx context.Context, mine []byte) (all [][]byte, err error) {
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

// exchangeValues exchanges values between all processes. It calls f with the value of each other
// process, and that process's first rank.
func exchangeValues[T any](ctx context.Context, w *Process, mine T, f func(rank int, theirs *T) error) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(mine); err != nil {
		return err
	}
	all, err := w.exchange(ctx, b.Bytes())
	for rank, data := range all {
		if err != nil || w.Has(rank) || len(data) == 0 {
			continue
		}
		var theirs T
		if err = gob.NewDecoder(bytes.NewReader(data)).Decode(&theirs); err == nil {
			err = f(rank, &theirs)
		}
	}
	return err
}

// share sends err to the other processes. It returns err; if that is nil, another process's error or that of the exchange.
func (w *Process) share(ctx context.Context, err error) error {
	if w == nil {
		return err
	}
	var mine string
	if err != nil {
		mine = err.Error()
	}
	fault := exchangeValues(ctx, w, mine, func(rank int, theirs *string) error {
		if *theirs != "" && err == nil {
			err = &elsewhereError{rank, *theirs}
		}
		return nil
	})
	return cmp.Or(err, fault)
}

// Agree returns the leader's decision in all processes. say is the decision if this process leads.
func (w *Process) Agree(ctx context.Context, say bool) (bool, error) {
	if w == nil {
		return say, nil
	}
	agreed := w.Leads() && say
	err := exchangeValues(ctx, w, agreed, func(_ int, theirs *bool) error {
		agreed = agreed || *theirs
		return nil
	})
	return agreed && err == nil, err
}

// Reducer returns w, whose ReduceTallies merges the FP8 tallies of all processes, or nil if this
// process is the only one.
func (w *Process) Reducer() fp8.Reducer {
	if w == nil {
		return nil
	}
	return w
}

// ReduceTallies merges the tallies of all other processes into tallies.
func (w *Process) ReduceTallies(ctx context.Context, tallies []fp8.Tally) error {
	if w == nil {
		return nil
	}
	return exchangeValues(ctx, w, tallies, func(rank int, theirs *[]fp8.Tally) error {
		if len(*theirs) != len(tallies) {
			return fmt.Errorf("rank %d has %d FP8 tallies, but this process has %d", rank, len(*theirs), len(tallies))
		}
		for i := range tallies {
			tallies[i].Merge((*theirs)[i])
		}
		return nil
	})
}

// Statuses returns the statuses of this process's ranks, or of all ranks if this process has
// rank 0.
func (w *Process) Statuses() (all []transport.RankStatus) {
	if w == nil {
		return nil
	}
	ends := w.ends
	if w.Leads() {
		ends = ends[:1] // it receives the heartbeats of all ranks
	}
	for _, end := range ends {
		all = append(all, end.Statuses()...)
	}
	return all
}

// Close leaves the job.
func (w *Process) Close() error {
	if w == nil {
		return nil
	}
	err := w.each(func(_ int, end *tcp.Endpoint[kernels.Buffer]) error {
		if end == nil {
			return nil // it has not joined
		}
		return end.Close()
	})
	if w.mpi != nil && w.ends != nil { // otherwise, the others do not wait for MPI to end
		err = cmp.Or(err, w.mpi.Close())
	}
	return err
}
