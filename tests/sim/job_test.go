package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Job is a run of a transformer on ranks that are connected by transport/tcp. Its fields determine
// the faults, and how a connection delivers data. The Go scheduler determines the order of the
// goroutines of a transport that are ready at the same time.
type Job struct {
	Seed                                            uint64
	Ranks, Microbatches, Steps, Capacity, LookAhead int
	Schedule                                        string
	Copies, Sums                                    bool
	Replicas, Shard                                 int           // of pipelines; Ranks counts the ranks of all replicas
	Window                                          int           // of a connection, in bytes
	Heals                                           time.Duration // after the first fault, the network heals and faults end; 0 means never
	Faults                                          []JobFault
}

// JobFault is a fault at a write or an action of a rank.
type JobFault struct {
	Kind     jobKind
	Rank, At int
}

type jobKind int

const (
	dies        jobKind = iota // the process dies
	hushed                     // no data reaches the rank or leaves it
	severs                     // the connection on which the rank writes is reset
	drags                      // the connection on which the rank writes becomes slow
	disconnects                // no data passes between the rank and the one to which it writes
	halts                      // the context of the rank's step is canceled, even while the rank waits for the others
	raises                     // a hook panics
	stops                      // the context of the rank's step is canceled
	numJobKinds
)

func drawJob(seed uint64) Job {
	r := rand.New(rand.NewPCG(seed, 4))
	all := slices.DeleteFunc(schedule.Schedules(), func(s schedule.Schedule) bool { return !s.AscendingBackward })
	j := Job{Seed: seed, Ranks: 2 + r.IntN(3), Microbatches: 1 + r.IntN(6), Steps: 1 + r.IntN(3), Capacity: r.IntN(4) - 1, LookAhead: r.IntN(3), Copies: r.IntN(4) == 0}
	j.Schedule = all[r.IntN(len(all))].Name
	faults := r.IntN(3)
	more := rand.New(rand.NewPCG(seed, 6))
	if j.Replicas = 1; more.IntN(3) == 0 {
		j.Replicas, j.Shard = []int{0, 1, 2, 3, 2 + 2*more.IntN(2)}[j.Ranks], more.IntN(4)
		j.Microbatches += j.Replicas - 1
	}
	if j.Schedule == "dualpipev" {
		j.Microbatches *= 2 * j.Ranks
	}
	j.Sums, j.Window = more.IntN(3) == 0, 1<<(8+more.IntN(8))
	if more.IntN(4) == 0 {
		faults += 1 + more.IntN(6)
	}
	if more.IntN(2) == 0 {
		j.Heals = time.Duration(more.Int64N(int64(2 * silence)))
	}
	for range faults {
		j.Faults = append(j.Faults, JobFault{jobKind(r.IntN(int(numJobKinds))), r.IntN(j.Ranks), r.IntN(1 << (2 + r.IntN(8)))})
	}
	return j
}

// job is a running Job.
type job struct {
	Job
	*world
	net     *network
	fired   []JobFault
	earlier int    // number of faults before this step
	lost    []bool // ranks that may be lost
	actions []int  // by rank
	cancels []context.CancelCauseFunc
	ends    []*tcp.Endpoint[T]
	runners []*runner.Runner[T]

	marks    *marks
	joined   int       // number of ranks that have joined
	aborting int       // number of ranks in Abort
	faulted  time.Time // when the last fault has happened, or the step has begun, or the network has healed
}

const silence = 10 * time.Second

// happen triggers the faults of a write or an action, under the lock of the network.
func (j *job) happen(rank, now int, atAction bool, w *wire) {
	for i := range j.Job.Faults {
		f := &j.Job.Faults[i]
		if f.At < 0 || f.Rank != rank || now < f.At || (f.Kind >= raises) != atAction {
			continue
		}
		f.At = -1
		if len(j.fired) == 0 && j.Heals > 0 {
			time.AfterFunc(j.Heals, j.heal)
		}
		j.fired = append(j.fired, *f)
		j.lost[rank] = j.lost[rank] || f.Kind < severs
		j.faulted, j.net.delays = time.Now(), 0
		j.markFault(f)
		switch f.Kind {
		case dies:
			j.net.kill(rank)
		case hushed:
			j.net.silent[rank] = true
		case severs:
			for _, e := range w.ends { // the control connection of a rank, at both ends
				j.lost[e.rank] = j.lost[e.rank] || w.control
			}
			w.reset()
			j.net.changed.Broadcast()
		case disconnects:
			one, other := w.ends[0].rank, w.ends[1].rank
			j.net.parted[[2]int{min(one, other), max(one, other)}] = true
			for _, e := range w.ends { // without rank 0, the job has lost the other one
				j.lost[e.rank] = j.lost[e.rank] || min(one, other) == 0
			}
		case drags:
			w.late = time.Second / 2 // less than the two seconds for which a rank waits for the cause of a lost link
		case raises:
			panic(errPlanted)
		case stops, halts:
			if j.cancels[rank] != nil {
				j.cancels[rank](errCancelled)
			}
		}
	}
}

// heal ends the faults of the job, and drops those that have not happened.
func (j *job) heal() {
	n := j.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.silent, true) || len(n.parted) > 0 {
		j.marks.add(healsBefore, j.Heals < silence)
		j.marks.add(healsAfter, j.Heals > silence)
	}
	j.faulted, n.delays, j.Job.Faults = time.Now(), 0, nil
	n.heal()
}

// each calls a function for all ranks concurrently, and waits.
func (j *job) each(do func(rank int)) {
	var all sync.WaitGroup
	for rank := range j.Job.Ranks {
		all.Go(func() { do(rank) })
	}
	all.Wait()
}

// begin makes a new network, joins all ranks on it, and makes their runners.
func (j *job) begin() []error {
	n := newNetwork(j.Job.Seed, j.Job.Ranks, j.Window)
	j.net, j.actions, j.lost, j.fired = n, make([]int, j.Job.Ranks), make([]bool, j.Job.Ranks), nil
	j.earlier, j.joined, j.faulted = 0, 0, time.Now()
	n.mark = j.marks.add
	n.fault = func(rank int, w *wire) { j.happen(rank, n.writes[rank], false, w) }
	j.ends, j.runners, j.cancels = make([]*tcp.Endpoint[T], j.Job.Ranks), make([]*runner.Runner[T], j.Job.Ranks), make([]context.CancelCauseFunc, j.Job.Ranks)
	errs := make([]error, j.Job.Ranks)
	j.each(func(rank int) {
		j.ends[rank], errs[rank] = tcp.Join(context.Background(), tcp.Config{
			Rank: rank, Ranks: j.Job.Ranks, Address: "sim:0", Token: "secret", Capacity: j.Job.Capacity, Silence: silence,
			Network: host{n, rank}, Sums: j.Sums, Pipeline: j.world.Ranks,
		}, j.devs[rank].Host)
		if errs[rank] == nil {
			n.mu.Lock()
			j.joined++
			n.mu.Unlock()
		}
	})
	found, _ := schedule.Find(j.Job.Schedule)
	for rank := range j.Job.Ranks {
		if errs[rank] != nil {
			continue
		}
		j.runners[rank], errs[rank] = runner.New(runner.Config[T]{
			Stages: j.model.Stages(), Spaces: runner.Spaces[T](j.devs[rank]), FirstStep: j.number,
			Plan:     runner.Plan{Placement: j.placement, Rule: found.Rule, LookAhead: j.Job.LookAhead},
			Replicas: runner.Replicas{Count: j.Job.Replicas, Shard: j.Job.Shard},
			Topology: runner.Topology[T]{Ranks: j.world.Ranks, First: rank, Transport: func(int) transport.Transport[T] { return &post{j.ends[rank], j, rank} }},
			Hooks: runner.Hooks{Action: func(int, schedule.Action) {
				n.mu.Lock()
				defer n.mu.Unlock()
				j.actions[rank]++
				j.happen(rank, j.actions[rank], true, nil)
			}},
		})
	}
	return errs
}

// close closes runners and endpoints.
func (j *job) close() {
	j.each(func(rank int) {
		if j.runners[rank] != nil {
			_ = j.runners[rank].Close()
		}
		if j.ends[rank] != nil {
			_ = j.ends[rank].Close() // a connection that was cut returns an error
		}
	})
}

// endRun ends the run on a rank whose step has failed, as trainers do: all ranks begin a step with a
// special hello. If a rank tries to begin an ordinary step at the same time, this step does not begin.
func (j *job) endRun(ctx context.Context, rank int) error {
	for {
		err := j.ends[rank].Begin(ctx, []byte("the end of the run"))
		if err == nil {
			_, err = j.ends[rank].Exchange(ctx, nil)
		}
		if err == nil || errors.Is(err, errStuck) || errors.As(err, new(*tcp.LostError)) {
			return err
		}
	}
}

// step runs a step on all ranks.
func (j *job) step() ([]ending, error) {
	j.net.mu.Lock()
	j.faulted, j.net.delays = time.Now(), 0
	j.net.mu.Unlock()
	endings := make([]ending, j.Job.Ranks)
	contexts := make([]context.Context, j.Job.Ranks)
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, errStuck)
	defer cancel()
	for rank := range contexts {
		contexts[rank], j.cancels[rank] = context.WithCancelCause(ctx)
	}
	j.each(func(rank int) {
		e := &endings[rank]
		defer func() {
			if e.panicked = recover(); e.result == nil && errors.Is(j.endRun(ctx, rank), errStuck) {
				e.err = errStuck
			}
		}()
		e.result, e.err = j.runners[rank].Step(contexts[rank], j.Job.Microbatches, runner.Indexed(func(_ context.Context, entry batchctx.Entry[T]) error {
			j.putTokens(j.devs[rank].Host, entry, entry.Index())
			return nil
		}))
		if e.err == nil { // the rank has finished the step, and exchanges more with the others, as trainers do
			for range 2 {
				if _, err := j.ends[rank].Exchange(contexts[rank], nil); err != nil && !errors.As(err, new(*tcp.LostError)) {
					e.undone = err
				}
			}
		}
		e.returned = true
	})
	j.net.mu.Lock()
	defer j.net.mu.Unlock()
	if took, most := time.Since(j.faulted), time.Minute+j.net.delays; took > most {
		return endings, fmt.Errorf("the step has ended %v after its last fault (%v), not within %v (L8)", took, j.fired, most)
	}
	return endings, nil
}

// wrongStep returns the violation of a step, and whether the job is over.
func (j *job) wrongStep(endings []ending) (over bool, err error) {
	j.net.mu.Lock()
	defer j.net.mu.Unlock()
	well, failed, last := 0, 0, -1
	fired := func(kind jobKind, from int) bool {
		return slices.ContainsFunc(j.fired[from:], func(f JobFault) bool { return f.Kind == kind })
	}
	defer func() {
		if failed > 0 || !fired(severs, j.earlier) { // otherwise the next step may be the first to use the link
			j.earlier = len(j.fired)
		}
	}()
	// A rank whose link has ended waits two seconds for rank 0 to report the cause. If rank 0 is silent
	// too, which the rank detects only later, it names the link.
	hub := slices.ContainsFunc(j.fired, func(f JobFault) bool { return f.Kind == hushed && f.Rank == 0 })
	unsaid := hub && slices.Contains(j.lost[1:], true)
	// If the network heals just before a rank is lost, a connection for reads may already have been
	// silent for too long: its last heartbeat came up to a second before the fault. Only the step fails.
	late := fired(hushed, 0) && j.Heals > silence-2*time.Second
	quiet := !slices.ContainsFunc(j.fired, func(f JobFault) bool { return f.Kind >= severs && f.Kind != drags })
	for rank := range endings {
		e := &endings[rank]
		reason := e.err
		if err, ok := e.panicked.(error); ok {
			reason = err
		}
		lost, is := errors.AsType[*tcp.LostError](reason)
		over = over || is
		switch {
		case e.undone != nil && !j.lost[rank]:
			return true, fmt.Errorf("rank %d has done the step, and an exchange ends with %w (L8)", rank, e.undone)
		case errors.As(reason, new(*transport.StallError)):
			return true, fmt.Errorf("rank %d has noticed nothing for five minutes, after %v: %w", rank, j.fired, reason)
		case errors.Is(reason, errStuck):
			return true, reason
		case reason == nil && e.returned:
			last = rank
			if !j.lost[rank] {
				well++
			}
		case j.lost[rank]: // it may return any error
		case is && !j.lost[lost.Rank] && (!hub || j.Heals == 0): // rank 0 does not know that it is cut off, and may say so later
			return true, fmt.Errorf("rank %d says that rank %d is lost, after %v: %w", rank, lost.Rank, j.fired, reason)
		case !is && !unsaid && !late && !fired(disconnects, 0) && (quiet || len(j.fired) == j.earlier):
			return true, fmt.Errorf("rank %d has ended with %v (%v), after %v", rank, reason, e.panicked, j.fired)
		default:
			failed++
		}
	}
	for rank, d := range j.devs {
		var stats memory.Stats
		d.Stats(&stats)
		if stats.Live != stats.Classes[memory.Resident] {
			return over, fmt.Errorf("rank %d holds %d bytes after the step (L8)", rank, stats.Live-stats.Classes[memory.Resident])
		}
	}
	if well > 0 && failed > 0 && !j.lost[0] { // the last message of rank 0 may not reach all
		return over, fmt.Errorf("the step counts on %d ranks and not on %d (L8)", well, failed)
	}
	if last >= 0 {
		if failed == 0 && !over {
			err = j.wrongModel(endings[last].result)
		}
		j.number++
	}
	return over, err
}

// runJob runs a job. If a fault has happened, it runs the job again without faults.
func runJob(s Job, sum *jobTally) (err error) {
	s.Faults = slices.Clone(s.Faults)
	j := &job{Job: s, world: &world{Scenario: Scenario{Ranks: s.Ranks / s.Replicas, Replicas: s.Replicas, Shard: s.Shard, Copies: s.Copies, Transformer: true}, number: 1, m: s.Microbatches, training: true, dry: true}, marks: &sum.Marks}
	found, _ := schedule.Find(s.Schedule)
	for _, n := range []int{j.world.Ranks, 2 * j.world.Ranks} {
		if j.placement, err = found.Place(j.world.Ranks, n); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	var devs []kernels.Compute
	for rank := range s.Ranks {
		j.devs = append(j.devs, &device{hosts[rank], j.world})
		devs = append(devs, j.devs[rank])
	}
	if j.model, err = j.newModel(devs); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.model.Close()) }()
	defer time.AfterFunc(24*time.Hour, func() { panic(fmt.Sprintf("seed %d: %v", s.Seed, errStuck)) }).Stop()
	sum.Jobs++
	for again := range 2 {
		if again == 1 {
			j.Job.Faults = nil
		}
		over := false
		if err := errors.Join(j.begin()...); err != nil {
			over = true
			if j.close(); len(j.fired) == 0 {
				return fmt.Errorf("the ranks have not joined: %w", err)
			}
		}
		for step := 0; step < s.Steps && !over && err == nil; step++ {
			endings, late := j.step()
			over, err = j.wrongStep(endings)
			err = cmp.Or(err, late)
			sum.Steps++
			sum.Microbatches += int64(s.Microbatches)
		}
		if over && err == nil {
			sum.Over++
		}
		j.close()
		sum.Faults += int64(len(j.fired))
		if err != nil || again == 0 && len(j.fired) == 0 {
			return err
		}
	}
	return nil
}

// jobTally sums up jobs.
type jobTally struct {
	Jobs, Steps, Over, Faults, Microbatches int64
	Marks                                   marks
}

// TestJobs runs the jobs of consecutive seeds.
func TestJobs(t *testing.T) {
	began := time.Now()
	next := *seed
	if next == 0 {
		next = uint64(began.UnixNano())
	}
	t.Logf("the first seed is %d", next)
	for len(hosts) < 4 {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, host)
	}
	var sum jobTally
	for n := 0; n < 30 || time.Since(began) < *lasting; n++ {
		s := drawJob(next)
		var err error
		func() {
			defer func() {
				if recover() != nil { // some goroutines of the bubble have not ended
					err = errors.Join(err, errStuck)
				}
			}()
			synctest.Test(t, func(*testing.T) { err = runJob(s, &sum) })
		}()
		if err != nil {
			text, _ := json.Marshal(s)
			t.Fatalf("seed %d: %v\ngo test ./tests/sim -run TestJobs -seed %d\n%s", next, err, next, text)
		}
		next++
	}
	text, _ := json.Marshal(sum)
	t.Logf("next %d, %s, %.0f microbatches a second", next, text, float64(sum.Microbatches)/time.Since(began).Seconds())
	sum.Marks.report(t, jobMarks, sum.Jobs)
}
