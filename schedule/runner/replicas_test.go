package runner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// width is the number of elements of a tensor, and of a long parameter, which has 64 parts.
const width = 1<<17 + 48

// short is the number of elements of a short parameter, which belongs to one replica.
const short = 5

// affine is a stage of a test with replicas: y = w·x + b + t, with a long parameter w, a short one
// b, and t, which the first and the last stage share. Plain loops make the numbers.
type affine struct {
	dev         kernels.Device
	host        *kernels.Host // nil on a Null, which computes nothing
	number      int
	first, last bool
	frozen      bool
	ignores     bool                                           // it asks for no weights, and computes with zeros
	sometimes   bool                                           // only microbatches of the first of two replicas contribute
	flip        func(what string, microbatch int, x []float32) // changes a tensor, if it is not nil
	params      []batchctx.Use[buffer]
	own         [][2]int // by parameter: first element and number of elements of the shard
}

func (a *affine) Spec() stages.Spec {
	spec := stages.Spec{Name: fmt.Sprint("affine ", a.number), Slots: []string{"x"}}
	if a.first {
		spec.Reads = []stages.Read{{Part: "x"}}
	} else {
		spec.Inputs = wire
	}
	spec.Frozen = a.frozen
	if a.last {
		spec.Losses = []string{"loss"}
	} else {
		spec.Outputs = wire
	}
	return spec
}

func (a *affine) floats(b buffer) []float32 {
	if a.host == nil {
		return nil
	}
	return a.host.Float32s(b)
}

func (a *affine) Params() []batchctx.Use[buffer] { return a.params }

// weight returns the elements of a weight.
func (a *affine) weight(mb batchctx.Microbatch[buffer], p int) []float32 {
	if a.ignores {
		return make([]float32, width)
	}
	return a.floats(mb.Weight(batchctx.Param(p + 1)))
}

func (a *affine) Forward(_ context.Context, mb batchctx.Microbatch[buffer], in, out []buffer) error {
	var x buffer
	if a.first {
		x = mb.Part(1)
	} else {
		x = in[0]
	}
	mb.Save(1, mb.Retain(x))
	y := mb.Must(a.dev.Alloc(memory.Activation, kernels.Float32, width))
	from, to := a.floats(x), a.floats(y)
	var weights [][]float32
	for p := range a.params {
		weights = append(weights, a.weight(mb, p))
	}
	var sum float64
	for i := range to {
		to[i] = weights[0][i]*from[i] + weights[1][i%short]
		if len(weights) > 2 {
			to[i] += weights[2][i]
		}
	}
	a.flipped("output", mb, to)
	for i := range to {
		sum += float64(to[i])
	}
	if !a.last {
		out[0] = y
		return nil
	}
	mb.Loss(1, sum, 1+float64(mb.Index()))
	_, err := a.dev.Release(y)
	return err
}

func (a *affine) Backward(_ context.Context, mb batchctx.Microbatch[buffer], gradOut, gradIn []buffer) error {
	x := a.floats(mb.Take(1))
	a.flipped("saved", mb, x)
	var dy []float32
	if a.host != nil {
		dy = make([]float32, width)
	}
	if a.last {
		seed := mb.LossSeed(1)
		for i := range dy {
			dy[i] = seed
		}
	} else {
		copy(dy, a.floats(gradOut[0]))
	}
	for p := range a.params {
		if a.sometimes && mb.Index()%2 == 1 {
			continue
		}
		grad, trains := mb.Grad(batchctx.Param(p + 1))
		if !trains {
			continue
		}
		g := a.floats(grad)
		var sums [short]float64
		for i := range dy {
			switch p {
			case 0:
				g[i] += float32(x[i] * dy[i])
			case 1:
				sums[i%short] += float64(dy[i])
			default:
				g[i] += dy[i]
			}
		}
		if p == 1 {
			for i := range g {
				g[i] += float32(sums[i])
			}
		}
		a.flipped("gradient", mb, g)
	}
	if gradIn != nil {
		gradIn[0] = mb.Must(a.dev.Alloc(memory.ActGrad, kernels.Float32, width))
		w, dx := a.weight(mb, 0), a.floats(gradIn[0])
		for i := range dx {
			dx[i] = w[i] * dy[i]
		}
		a.flipped("input", mb, dx)
	}
	return nil
}

func (a *affine) flipped(what string, mb batchctx.Microbatch[buffer], x []float32) {
	if a.flip != nil {
		a.flip(what, mb.Index(), x)
	}
}

// replicated is a test of replicas of a pipeline with two stages on each rank.
type replicated struct {
	replicas, ranks, shard int
	null                   bool // record the first replica on Null devices
	rule                   schedule.Rule
	place                  schedule.Placement // of a replica; stages are placed in turn if it is zero
	change                 func(cfg *runner.Config[buffer])
	fails                  string // what the error of New contains
	cfg                    runner.Config[buffer]
	stages                 []*affine // of all replicas
	hosts                  []*kernels.Host
}

// weightOf returns the initial weight of an element.
func weightOf(name string, i int) float32 {
	return 1 + float32((i*7+len(name)*3+int(name[len(name)-1])*11)%13)/61
}

func (r *replicated) build(t testing.TB) *runner.Runner[buffer] {
	t.Helper()
	place := r.place
	if place.Ranks == 0 {
		place = schedule.Looped(r.ranks, 2*r.ranks)
	}
	r.cfg = runner.Config[buffer]{
		Losses: objective, Plan: runner.Plan{Rule: r.rule, Placement: place}, Topology: runner.Topology[buffer]{Capacity: 2},
		Replicas: runner.Replicas{Count: r.replicas, Shard: r.shard},
	}
	if r.rule == nil {
		r.cfg.Plan.Rule = schedule.Interleaved
	}
	null := r.null
	for replica := range r.replicas {
		for range r.ranks {
			host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 26, Threads: 1})
			require.NoError(t, err)
			r.hosts = append(r.hosts, host)
			if null {
				r.cfg.Spaces = append(r.cfg.Spaces, kernels.NewNull(host))
			} else {
				r.cfg.Spaces = append(r.cfg.Spaces, host)
			}
		}
		for s, rank := range place.Rank {
			k := s % place.Depth()
			a := &affine{host: r.hosts[replica*r.ranks+rank], number: k, first: place.First(s), last: place.Last(s)}
			a.dev = a.host
			if null {
				a.dev, a.host = r.cfg.Spaces[rank].(*kernels.Null), nil
			}
			a.param(t, r, replica, fmt.Sprint("w", k), width)
			a.param(t, r, replica, fmt.Sprint("b", k), short)
			if a.first || a.last {
				a.param(t, r, replica, "t", width)
			}
			r.stages, r.cfg.Stages = append(r.stages, a), append(r.cfg.Stages, a)
		}
		if null {
			break
		}
	}
	if null {
		return nil
	}
	if r.change != nil {
		r.change(&r.cfg)
	}
	run, err := runner.New(r.cfg)
	if r.fails != "" {
		require.ErrorContains(t, err, r.fails)
		for _, host := range r.hosts {
			require.NoError(t, host.Close())
		}
		return nil
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, run.Close())
		for _, host := range r.hosts {
			require.NoError(t, host.Close())
		}
	})
	return run
}

// param adds a parameter to a stage, or the part that the level leaves to the replica.
func (a *affine) param(t testing.TB, r *replicated, replica int, name string, n int) {
	first, count := runner.ShardRange[buffer](a.dev.(runner.Sharded[buffer]), name, n, replica, r.replicas)
	of := func(level int) (int, int) {
		if r.replicas > 1 && r.shard >= level {
			return first, count
		}
		return 0, n
	}
	use := batchctx.Use[buffer]{Name: name, Elements: n, Tied: name == "t" && a.last}
	if _, count := of(2); count > 0 {
		grad, err := a.dev.Alloc(memory.Resident, kernels.Float32, count)
		require.NoError(t, err)
		use.Grad = grad
	}
	if name == "t" && a.last && r.ranks == 1 { // the same weight, and the first use has the whole gradient
		use.Weight = r.stages[len(r.stages)-a.number].params[2].Weight
	} else if first, count := of(3); count > 0 {
		weights := make([]float32, count)
		for i := range weights {
			weights[i] = weightOf(name, first+i)
		}
		weight, err := a.dev.Alloc(memory.Resident, kernels.Float32, count)
		require.NoError(t, err)
		copy(a.floats(weight), weights)
		use.Weight = weight
	}
	a.params = append(a.params, use)
	a.own = append(a.own, [2]int{first, count})
}

// update subtracts the gradients from the weights: whole ones at level 0, or else the shards.
func (r *replicated) update(factor float64) error {
	for _, a := range r.stages {
		for p, use := range a.params {
			first, count := a.own[p][0], a.own[p][1]
			if r.replicas == 1 || r.shard == 0 {
				first, count = 0, use.Elements
			}
			if count == 0 || a.frozen || a.last && p == 2 && r.ranks == 1 {
				continue
			}
			weight, grad := a.floats(use.Weight), a.floats(use.Grad)
			if len(weight) > count {
				weight = weight[first:][:count]
			}
			if len(grad) > count {
				grad = grad[first:][:count]
			}
			for i := range weight {
				weight[i] -= float32(1e-3*factor) * grad[i]
			}
		}
	}
	return nil
}

// weights returns the whole weights by name, from the replicas that have them, and requires that
// all that have an element agree.
func (r *replicated) weights(t testing.TB) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, a := range r.stages {
		for p, use := range a.params {
			whole, first := all[use.Name], 0
			if whole == nil {
				whole = make([]float32, use.Elements)
				all[use.Name] = whole
			}
			if use.Weight == (buffer{}) {
				continue
			}
			have := a.floats(use.Weight)
			if len(have) < use.Elements {
				first = a.own[p][0]
			}
			for i, w := range have {
				if whole[first+i] != 0 && whole[first+i] != w {
					t.Fatalf("element %d of %s is %v and %v", first+i, use.Name, whole[first+i], w)
				}
				whole[first+i] = w
			}
		}
	}
	return all
}

func (r *replicated) source() runner.Source[buffer] {
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error { return r.put(e, e.Index()) })
}

// put puts the entry with a number.
func (r *replicated) put(e batchctx.Entry[buffer], number int) error {
	if !e.Wants("x") {
		return nil
	}
	dev := r.cfg.Spaces[e.Rank()-r.cfg.Topology.First].(kernels.Device)
	h := e.Must(dev.Alloc(memory.Entry, kernels.Float32, width))
	var x []float32
	if host, ok := dev.(*kernels.Host); ok {
		x = host.Float32s(h)
	}
	for i := range x {
		x[i] = float32((i*5+number*17)%29) / 37
	}
	e.Put("x", h)
	return nil
}

// train runs steps and returns the weights, and the last result.
func (r *replicated) train(t testing.TB, batches ...int) (map[string][]float32, *runner.Result) {
	t.Helper()
	run := r.build(t)
	var result *runner.Result
	for _, m := range batches {
		result = runStep(t, run, m, r.source())
		require.NoError(t, result.Update(r.update))
	}
	evaluated := evaluate(t, run, r.replicas, r.source())
	require.Zero(t, evaluated.Excess)
	require.Zero(t, result.Excess)
	return r.weights(t), result
}

// TestCloseReleasesChunks: a closed runner of replicas holds no memory, and may be closed again.
func TestCloseReleasesChunks(t *testing.T) {
	var before []int64
	r := &replicated{replicas: 2, ranks: 1, shard: 1}
	r.change = func(*runner.Config[buffer]) {
		for _, host := range r.hosts {
			before = append(before, host.Live())
		}
	}
	run := r.build(t)
	require.Greater(t, r.hosts[0].Live(), before[0])
	require.NoError(t, run.Close())
	for i, host := range r.hosts {
		require.Equal(t, before[i], host.Live())
	}
	require.NoError(t, run.Close())
}

// TestReplicasTrainOneModel trains one model with 1, 2 and 3 replicas on one and two ranks, at every
// level. The weights of all levels are equal bit by bit, and those of all numbers of replicas nearly, even if the
// replicas have different numbers of microbatches, and with tied parameters (L5, L9).
func TestReplicasTrainOneModel(t *testing.T) {
	testkit.Slow(t)
	batches := []int{5, 4}
	for _, ranks := range []int{1, 2} {
		one := &replicated{replicas: 1, ranks: ranks}
		want, result := one.train(t, batches...)
		for _, replicas := range []int{2, 3} {
			var first map[string][]float32
			var norm float64
			for shard := range 4 {
				r := &replicated{replicas: replicas, ranks: ranks, shard: shard}
				have, got := r.train(t, batches...)
				name := fmt.Sprintf("%d replicas of %d ranks, level %d", replicas, ranks, shard)
				require.InEpsilon(t, result.GradNorm, got.GradNorm, 1e-6, name)
				require.InEpsilon(t, result.Loss("loss"), got.Loss("loss"), 1e-6, name)
				for parameter, w := range want {
					for i := range w {
						if d := w[i] - have[parameter][i]; d > 1e-5 || d < -1e-5 {
							t.Fatalf("%s: element %d of %s is %v, and %v with one replica", name, i, parameter, have[parameter][i], w[i])
						}
					}
				}
				if shard == 0 {
					first, norm = have, got.GradNorm
				}
				require.True(t, norm == got.GradNorm, name)
				for parameter, w := range first {
					require.True(t, slices.Equal(w, have[parameter]), "%s: %s", name, parameter)
				}
			}
		}
	}
}

// record returns the profile of a replica.
func (r *replicated) record(t testing.TB) *layout.Profile {
	t.Helper()
	null := &replicated{replicas: r.replicas, ranks: r.ranks, shard: r.shard, rule: r.rule, null: true}
	null.build(t)
	profile, err := record.Stages(t.Context(), null.cfg, record.Shape[buffer]{Name: "only", Source: null.source()})
	require.NoError(t, err)
	return profile
}

// TestReplicasArePlanned compares the planned peak of every rank with the measured one, and in the first
// replica class by class, with 4 replicas at every level (L6). It compares the bytes of gradients and weights
// with 4/R for each element that is sharded and 4 for each one that is not.
func TestReplicasArePlanned(t *testing.T) {
	testkit.Slow(t)
	const replicas, ranks = 4, 2
	for shard := range 4 {
		r := &replicated{replicas: replicas, ranks: ranks, shard: shard}
		profile := r.record(t)
		var resident int64
		r.change = func(cfg *runner.Config[buffer]) {
			cfg.Memory.Profile = profile
			resident = cfg.Spaces[0].(memory.Book).Live()
		}
		run := r.build(t)
		prepared, err := run.Prepare(t.Context(), 9, r.source())
		require.NoError(t, err)
		planned := prepared.(*layout.Memory)
		for range 2 {
			result := runStep(t, run, 9, r.source())
			require.True(t, result.Planned)
			require.NoError(t, result.Update(r.update))
			for rank, got := range result.Ranks {
				require.Equal(t, got.PeakPlanned, got.Peak, "level %d, rank %d", shard, rank)
			}
			// Replica 0 has the most microbatches, for which Prepare has planned.
			for rank := range ranks {
				require.EqualValues(t, planned.Ranks[rank].Height, result.Ranks[rank].Height)
				classes := result.Ranks[rank].PeakClasses
				for class, bytes := range planned.Ranks[rank].Peak.Classes {
					if !memory.Class(class).Lasting() {
						require.Equal(t, bytes, classes[class], "level %d, rank %d, class %v", shard, rank, memory.Class(class))
					}
				}
			}
		}
		evaluate(t, run, 5, r.source())

		// Rank 0 of replica 0 has stages 0 and 2: two weights w, the short b0 and b2, and t.
		elements := int64(3*width + 2*short)
		bytes := map[int]int64{0: 8 * elements, 1: 8 * elements, 2: 4*elements + 4*elements/replicas, 3: 8 * elements / replicas}[shard]
		require.InDelta(t, bytes, resident, 64+16*2*3*replicas, "level %d: weights and gradients", shard)
	}
}

// TestJoinedPairsGatherTwoStages trains at level 3 with a plan that joins pairs, whose two stages are gathered at the
// same time unless the configuration sets another number.
func TestJoinedPairsGatherTwoStages(t *testing.T) {
	v := schedule.Wave(2, 4)
	want, _ := (&replicated{replicas: 2, ranks: 2, rule: schedule.DualPipeV, place: v}).train(t, 9)
	have, _ := (&replicated{replicas: 2, ranks: 2, shard: 3, rule: schedule.DualPipeV, place: v}).train(t, 9)
	require.Equal(t, want, have)
	r := &replicated{replicas: 2, ranks: 2, shard: 3, rule: schedule.DualPipeV, place: v}
	r.change = func(cfg *runner.Config[buffer]) { cfg.Replicas.Gathered = 1 }
	_, err := r.build(t).Step(t.Context(), 9, r.source())
	require.ErrorContains(t, err, "one stage is gathered at once, and plan \"dualpipev\" joins pairs of two")
}

// TestReplicasOfTwoCopies trains with a schedule of two copies of the model, whose uses of a parameter
// are tied, with even and uneven shares. A copy without a microbatch would reduce nothing.
func TestReplicasOfTwoCopies(t *testing.T) {
	place := schedule.Placement{Ranks: 2, Rank: []int{0, 1, 1, 0}, Copies: 2}
	var first map[string][]float32
	for shard := range 4 {
		r := &replicated{replicas: 2, ranks: 2, shard: shard, rule: schedule.DualPipe, place: place}
		have, _ := r.train(t, 4, 9)
		if first == nil {
			first = have
		}
		require.Equal(t, first, have, "level %d", shard)
	}
	r := &replicated{replicas: 2, ranks: 2, rule: schedule.DualPipe, place: place}
	_, err := r.build(t).Step(t.Context(), 3, r.source())
	require.ErrorContains(t, err, "3 microbatches for 2 replicas of 2 copies of the model: each copy needs at least one")
}

// windowed is a transport whose windows call a function before a read.
type windowed struct {
	*local.Endpoint[buffer]
	rank   int
	before func(ctx context.Context, rank int, tag transport.Tag) error
}

func (w *windowed) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	if err := w.before(ctx, w.rank, tag); err != nil {
		return err
	}
	return w.Endpoint.Get(ctx, from, tag, offset, dst)
}

// through links the ranks by windows that call a function before every read.
func (r *replicated) through(t testing.TB, before func(ctx context.Context, rank int, tag transport.Tag) error) {
	r.change = func(cfg *runner.Config[buffer]) {
		links, err := local.New(local.Config[buffer]{Ranks: r.replicas * r.ranks, Capacity: 2, Stall: -1, Copy: func(from, to int, h buffer) (buffer, error) {
			return r.hosts[to].Receive(r.hosts[from], h)
		}})
		require.NoError(t, err)
		cfg.Topology = runner.Topology[buffer]{Ranks: r.ranks, Transport: func(rank int) transport.Transport[buffer] {
			return &windowed{links.Rank(rank), rank, before}
		}}
	}
}

// TestActionsRunWhileGradientsAreReduced holds the first reduction of a rank open until the rank has
// run a later action. If REDUCE_GRAD waited for the reduction, all goroutines would wait forever.
func TestActionsRunWhileGradientsAreReduced(t *testing.T) {
	for _, shard := range []int{0, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := &replicated{replicas: 2, ranks: 2, shard: shard}
			reducing, later := false, make(chan struct{})
			r.through(t, func(ctx context.Context, rank int, tag transport.Tag) error {
				if rank != 0 || tag.Content != transport.Grads {
					return nil
				}
				select {
				case <-later:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			change := r.change
			r.change = func(cfg *runner.Config[buffer]) {
				change(cfg)
				cfg.Hooks.Action = func(rank int, a schedule.Action) {
					if rank != 0 {
						return
					}
					if reducing && a.Kind() == schedule.B {
						select {
						case <-later:
						default:
							close(later)
						}
					}
					reducing = reducing || a.Kind() == schedule.ReduceGrad
				}
			}
			run := r.build(t)
			runStep(t, run, 4, r.source())
		})
	}
}

// TestAReductionEndsWithItsStep ends a step while a reduction or a gather is under way, on each rank,
// with an error of the read and with one of a stage. Nothing is left, and the next step has the
// numbers of a runner that has not failed (L8).
func TestAReductionEndsWithItsStep(t *testing.T) {
	levels := []int{0, 2, 3}
	if testkit.Raced {
		levels = levels[2:] // which reduces and gathers
	} else {
		testkit.Slow(t)
	}
	planted := errors.New("planted")
	for _, shard := range levels {
		calm := &replicated{replicas: 2, ranks: 2, shard: shard}
		want, err := calm.build(t).Step(t.Context(), 5, calm.source())
		require.NoError(t, err)
		for _, content := range []transport.Content{transport.Grads, transport.Weights} {
			if content == transport.Weights && shard < 3 {
				continue
			}
			for on := range 4 {
				r := &replicated{replicas: 2, ranks: 2, shard: shard}
				var armed atomic.Bool
				armed.Store(true)
				r.through(t, func(_ context.Context, rank int, tag transport.Tag) error {
					if rank == on && tag.Content == content && armed.CompareAndSwap(true, false) {
						return planted
					}
					return nil
				})
				linked, failures := r.change, make([]error, 4)
				r.change = func(cfg *runner.Config[buffer]) {
					linked(cfg)
					cfg.Hooks.Failed = func(rank int, err error, _ iter.Seq[memory.Info]) { failures[rank] = err }
				}
				run := r.build(t)
				live := r.live()
				_, err := run.Step(t.Context(), 5, r.source())
				require.ErrorIs(t, err, planted)
				for _, failure := range failures {
					var where *transport.StepError
					require.ErrorAs(t, failure, &where)
					require.Equal(t, on, where.Rank, "%v", failure)
				}
				var where *transport.StepError
				require.ErrorAs(t, err, &where)
				require.Equal(t, on, where.Rank)
				require.False(t, armed.Load())
				require.Equal(t, live, r.live())
				result := runStep(t, run, 5, r.source())
				require.True(t, want.GradNorm == result.GradNorm)
			}
		}
	}
}

// live returns the live bytes of each rank.
func (r *replicated) live() (bytes []int64) {
	for _, host := range r.hosts {
		bytes = append(bytes, host.Live())
	}
	return bytes
}

// TestNothingIsAddedAfterTheReduction runs a plan whose REDUCE_GRAD comes before the last backward
// of its stage: the check refuses it, and without a check the backward does.
func TestNothingIsAddedAfterTheReduction(t *testing.T) {
	early := func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err != nil || p.Mode != schedule.Training {
			return plan, err
		}
		if plan, err = lower.Reduce(plan, 0); err != nil {
			return nil, err
		}
		if plan, err = lower.Lifetimes(plan, []schedule.StageInfo{{Reads: [schedule.NumKinds]uint64{schedule.F: 1}}, {}}, 1); err != nil {
			return nil, err
		}
		program := slices.Collect(plan.All(0))
		at := slices.IndexFunc(program, func(a schedule.Action) bool { return a.Kind() == schedule.ReduceGrad })
		if program[at-1].Kind() != schedule.B {
			return nil, fmt.Errorf("%v before the reduction", program[at-1])
		}
		program[at], program[at-1] = program[at-1], program[at]
		plan.Programs[0] = []schedule.Segment{{Body: program, Repeat: 1}}
		return plan, nil
	}
	r := &replicated{replicas: 2, ranks: 1, rule: early}
	_, err := r.build(t).Step(t.Context(), 4, r.source())
	require.ErrorContains(t, err, "is invalid")
	r = &replicated{replicas: 2, ranks: 1, rule: early}
	r.change = func(cfg *runner.Config[buffer]) { cfg.Plan.Unchecked = true }
	_, err = r.build(t).Step(t.Context(), 4, r.source())
	require.ErrorIs(t, err, batchctx.ErrContribution)
	require.ErrorContains(t, err, "after its reduction over the replicas")
}

// TestSumsAreOfFloat32InOrder compares the gradients of three replicas with the float32 sum, in the
// order of the replicas, of the gradients that one replica has of each share alone. A sum that was
// rounded before, taken in another order, or of a buffer that was cleared too early differs. The shares are those of a
// step without an order and of a step with one (L9).
func TestSumsAreOfFloat32InOrder(t *testing.T) {
	const replicas = 3
	var losses []loss.Value
	for _, order := range [][][]int{nil, {{6, 2, 5, 0}, {3}, {1, 4}}} {
		ranks, shares := 1, [][]int{{0, 3, 6}, {1, 4}, {2, 5}}
		r := &replicated{replicas: replicas, ranks: 1}
		source := r.source()
		if order != nil {
			ranks, shares, r.ranks = 2, order, 2
			source = runner.InOrder(source, order)
		}
		result, err := r.build(t).Step(t.Context(), 7, source)
		require.NoError(t, err)
		require.NotZero(t, result.GradNorm)
		if order == nil {
			losses = append(losses, result.Losses...)
		}
		require.Equal(t, losses[0].Weight, result.Losses[0].Weight)
		for p, use := range r.stages[0].params[:2] {
			want := make([]float32, use.Elements)
			for replica, share := range shares {
				alone := &replicated{replicas: 1, ranks: ranks}
				_, err := alone.build(t).Step(t.Context(), len(share), runner.Indexed(func(ctx context.Context, e batchctx.Entry[buffer]) error {
					return alone.put(e, share[e.Index()])
				}))
				require.NoError(t, err)
				for i, g := range alone.hosts[0].Float32s(alone.stages[0].params[p].Grad) {
					if replica == 0 {
						want[i] = g
					} else {
						want[i] += g
					}
				}
			}
			for replica := range replicas {
				a := r.stages[2*ranks*replica]
				require.True(t, slices.Equal(want, a.floats(a.params[p].Grad)), use.Name)
			}
		}
	}
}

// TestAGroupOfOne trains one replica at every level with a plan that reduces and gathers: it has the
// numbers of a plan that does not.
func TestAGroupOfOne(t *testing.T) {
	want, result := (&replicated{replicas: 1, ranks: 2}).train(t, 4)
	rule := func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.Interleaved(p)
		if err == nil {
			plan, err = lower.Shard(plan, 1)
		}
		if err == nil && p.Mode == schedule.Training {
			plan, err = lower.Reduce(plan, schedule.ShardWeights)
		}
		return plan, err
	}
	have, got := (&replicated{replicas: 1, ranks: 2, shard: 3, rule: rule}).train(t, 4)
	require.True(t, result.GradNorm == got.GradNorm)
	require.Equal(t, want, have)
}

// TestFrozenStagesAreNotReduced has a frozen first stage at every level: nothing of it is reduced, and
// its weights are gathered like the others.
func TestFrozenStagesAreNotReduced(t *testing.T) {
	testkit.Slow(t)
	var first map[string][]float32
	for shard := range 4 {
		r := &replicated{replicas: 2, ranks: 2, shard: shard}
		reduced := map[int]bool{}
		var mu sync.Mutex
		r.change = func(cfg *runner.Config[buffer]) {
			for _, a := range r.stages {
				if a.first {
					a.params = a.params[:2] // only the last stage has t
					for p := range a.params {
						a.params[p].Contributes = batchctx.Frozen
					}
					a.frozen = true
				}
			}
			cfg.Hooks.Action = func(_ int, action schedule.Action) {
				if action.Kind() == schedule.ReduceGrad {
					mu.Lock()
					defer mu.Unlock()
					reduced[action.Stage()] = true
				}
			}
		}
		have, _ := r.train(t, 4)
		require.Equal(t, map[int]bool{1: true, 2: true, 3: true}, reduced)
		if first == nil {
			first = have
		}
		require.Equal(t, first, have, "level %d", shard)
	}
}

// TestAReplicaThatContributesNothing has parameters to which only the microbatches of one replica
// contribute: the other one adds zeros, which changes nothing (L5).
func TestAReplicaThatContributesNothing(t *testing.T) {
	var want map[string][]float32
	for _, level := range [][2]int{{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}} {
		r := &replicated{replicas: level[0], ranks: 1, shard: level[1]}
		r.change = func(*runner.Config[buffer]) {
			for _, a := range r.stages {
				a.sometimes = true
				for p := range a.params {
					a.params[p].Contributes = batchctx.Sometimes
				}
			}
		}
		have, _ := r.train(t, 2, 3)
		if want == nil {
			want = have
		}
		require.Equal(t, want, have, "level %d", level[1])
	}
}

// TestReplicasHaveABudget gives the ranks as many bytes as a step needs at each level, and one byte
// less.
func TestReplicasHaveABudget(t *testing.T) {
	for shard := range 4 {
		profile, need := (&replicated{replicas: 2, ranks: 1, shard: shard}).record(t), int64(0)
		for _, less := range []int64{0, 0, 1} { // first without a budget
			r := &replicated{replicas: 2, ranks: 1, shard: shard}
			r.change = func(cfg *runner.Config[buffer]) {
				cfg.Memory.Profile, cfg.Memory.Budget = profile, need-less
			}
			result, err := r.build(t).Step(t.Context(), 5, r.source())
			if less == 1 {
				require.ErrorIs(t, err, layout.ErrBudget, "level %d", shard)
				continue
			}
			require.NoError(t, err, "level %d", shard)
			need = result.Height
		}
	}
}

// TestGradientsLiveUntilTheyAreRead delays the reads of one replica until all other goroutines wait,
// at WAIT_REDUCE at the latest: the whole gradients of the other replica are still there.
func TestGradientsLiveUntilTheyAreRead(t *testing.T) { // L4
	var want float64
	for _, delayed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &replicated{replicas: 2, ranks: 1, shard: 2}
			r.through(t, func(_ context.Context, rank int, tag transport.Tag) error {
				if delayed && rank == 1 && tag.Content == transport.Grads {
					synctest.Wait()
				}
				return nil
			})
			result, err := r.build(t).Step(t.Context(), 4, r.source())
			require.NoError(t, err)
			if !delayed {
				want = result.GradNorm
			}
			require.True(t, want == result.GradNorm)
		})
	}
}

// TestReplicasReadAsInARing counts the bytes that all ranks read of each other in a step of 4
// replicas. To reduce or to gather n elements, a rank of a ring sends (R-1)/R·n, all of them
// ·n. The replicas have two microbatches each, and gather both stages for each forward and each backward, except a
// stage that the rank has just computed, whose weights are still gathered.
func TestReplicasReadAsInARing(t *testing.T) {
	const replicas, parameters = 4, 3*width + 2*short
	const uses = parameters + width // t has two, whose weights are gathered one by one
	for shard, want := range []int64{uses + parameters, uses + uses, uses + uses, uses + 5*uses/2} {
		r := &replicated{replicas: replicas, ranks: 1, shard: shard}
		var links *local.Links[buffer]
		unshards := 0
		r.change = func(cfg *runner.Config[buffer]) {
			var err error
			links, err = local.New(local.Config[buffer]{Ranks: replicas, Capacity: 2, Copy: func(_, _ int, h buffer) (buffer, error) { return h, nil }})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, links.Close()) })
			cfg.Topology = runner.Topology[buffer]{Ranks: 1, Transport: func(rank int) transport.Transport[buffer] { return links.Rank(rank) }}
			cfg.Hooks.Action = func(rank int, a schedule.Action) {
				if rank == 0 && a.Kind() == schedule.Unshard {
					unshards++
				}
			}
		}
		run := r.build(t)
		for step := range int64(2) {
			result := runStep(t, run, 2*replicas, r.source())
			require.NoError(t, result.Update(r.update))
			var served int64
			for rank := range replicas {
				served += links.Rank(rank).Served()
			}
			require.Equal(t, (step+1)*4*(replicas-1)*want, served, "level %d", shard)
			require.Equal(t, map[int]int64{3: 5 * (step + 1)}[shard], int64(unshards))
		}
	}
}

// TestShardedWeightsAreAskedFor has a stage that computes without asking for its weights.
func TestShardedWeightsAreAskedFor(t *testing.T) {
	r := &replicated{replicas: 2, ranks: 1, shard: 3}
	run := r.build(t)
	for _, a := range r.stages {
		a.ignores = a.number == 1
	}
	_, err := run.Step(t.Context(), 2, r.source())
	require.ErrorIs(t, err, runner.ErrUnasked)
	require.ErrorContains(t, err, "stage 1 (affine 1) never asked for one")
}

// TestReplicasNeed builds replicas of a configuration that they cannot share.
func TestReplicasNeed(t *testing.T) {
	weight := func(r *replicated, p int, change func(use *batchctx.Use[buffer])) {
		for _, a := range r.stages {
			change(&a.params[p])
		}
	}
	for _, test := range []struct {
		shard  int
		says   string
		change func(r *replicated, cfg *runner.Config[buffer])
	}{
		{0, "2 replicas need a transport that is transport.Windows", func(r *replicated, cfg *runner.Config[buffer]) {
			r.through(t, nil)
			r.change(cfg)
			windows := cfg.Topology.Transport
			cfg.Topology.Transport = func(rank int) transport.Transport[buffer] {
				return struct{ transport.Transport[buffer] }{windows(rank)}
			}
		}},
		{0, "2 replicas need spaces that are memory.Movable", func(r *replicated, cfg *runner.Config[buffer]) {
			cfg.Gradients = r.hosts[0]
			for i, host := range r.hosts {
				cfg.Spaces[i] = struct{ memory.Space[buffer] }{host}
			}
			cfg.Topology.Copy = func(_, _ int, h buffer) (buffer, error) { return h, nil }
		}},
		{0, "2 replicas need Gradients that are runner.Sharded", func(r *replicated, cfg *runner.Config[buffer]) {
			cfg.Gradients = struct{ runner.Gradients[buffer] }{r.hosts[0]}
		}},
		{1, `the weight of "b0" has 0 elements, but Replicas.Shard 1 needs 5 of 5: set Use.Weight`, func(r *replicated, _ *runner.Config[buffer]) {
			weight(r, 1, func(use *batchctx.Use[buffer]) { use.Weight = buffer{} })
		}},
		{1, `the weight of "b0" has 5 bytes for 5 elements: Replicas.Shard 1 gathers float32`, func(r *replicated, _ *runner.Config[buffer]) {
			weight(r, 1, func(use *batchctx.Use[buffer]) {
				var err error
				use.Weight, err = r.hosts[0].Alloc(memory.Resident, kernels.Uint8, short)
				require.NoError(t, err)
			})
		}},
		{3, `the parameter "b`, func(r *replicated, _ *runner.Config[buffer]) {
			weight(r, 1, func(use *batchctx.Use[buffer]) { use.Elements = 0 })
		}},
	} {
		r := &replicated{replicas: 2, ranks: 1, shard: test.shard, fails: test.says}
		r.change = func(cfg *runner.Config[buffer]) { test.change(r, cfg) }
		r.build(t)
	}
}

// TestGathersAllocateNothing compares steps that gather weights in every microbatch with steps that
// gather none: the stages of the test allocate the same in both.
func TestGathersAllocateNothing(t *testing.T) { // L11
	if testkit.Raced || invariants.Enabled {
		t.Skip("pools forget under the race detector, and with -tags invariants every call gets a view of its own")
	}
	grown := map[int]int64{}
	for _, level := range []int{1, 3} {
		r := &replicated{replicas: 2, ranks: 1, shard: level}
		run := r.build(t)
		counts := map[int]int64{}
		for _, m := range []int{4, 20} {
			counts[m] = int64(testkit.Allocations(func() {
				result := runStep(t, run, m, r.source())
				require.NoError(t, result.Update(r.update))
			}))
		}
		grown[level] = counts[20] - counts[4]
	}
	require.InDelta(t, grown[1], grown[3], 8, "16 further microbatches; a call that waits for the other replica allocates")
}
