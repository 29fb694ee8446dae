package runner_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
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
	params      []batchctx.Use[buffer]
	own         [][2]int // by parameter: first element and number of elements of the shard, at least level 2
}

func (a *affine) Spec() stages.Spec {
	spec := stages.Spec{Name: fmt.Sprint("affine ", a.number), Slots: []string{"x"}}
	if a.first {
		spec.Reads = []stages.Read{{Part: "x"}}
	} else {
		spec.Inputs = wire
	}
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
		weights = append(weights, a.floats(mb.Weight(batchctx.Param(p+1))))
	}
	var sum float64
	for i := range to {
		to[i] = weights[0][i]*from[i] + weights[1][i%short]
		if len(weights) > 2 {
			to[i] += weights[2][i]
		}
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
	}
	if gradIn != nil {
		gradIn[0] = mb.Must(a.dev.Alloc(memory.ActGrad, kernels.Float32, width))
		w, dx := a.floats(mb.Weight(1)), a.floats(gradIn[0])
		for i := range dx {
			dx[i] = w[i] * dy[i]
		}
	}
	return nil
}

// replicated is a test of replicas of a pipeline with two stages on each rank.
type replicated struct {
	replicas, ranks, shard int
	null                   bool // record the first replica on Null devices
	rule                   schedule.Rule
	place                  schedule.Placement // of a replica; stages are placed in turn if it is zero
	change                 func(cfg *runner.Config[buffer])
	cfg                    runner.Config[buffer]
	stages                 []*affine // of all replicas
	hosts                  []*kernels.Host
}

// weightOf returns the initial weight of an element.
func weightOf(name string, i int) float32 {
	return 1 + float32((i*7+len(name)*3+int(name[len(name)-1])*11)%13)/64
}

func (r *replicated) build(t testing.TB) *runner.Runner[buffer] {
	t.Helper()
	place := r.place
	if place.Ranks == 0 {
		place = schedule.Looped(r.ranks, 2*r.ranks)
	}
	r.cfg = runner.Config[buffer]{
		Losses: objective, Plan: runner.Plan{Rule: r.rule, Placement: place}, World: runner.World[buffer]{Capacity: 2},
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
			a := &affine{host: r.hosts[replica*r.ranks+rank], number: s, first: s == 0, last: s == 2*r.ranks-1}
			a.dev = a.host
			if null {
				a.dev, a.host = r.cfg.Spaces[rank].(*kernels.Null), nil
			}
			a.param(t, r, replica, fmt.Sprint("w", s), width)
			a.param(t, r, replica, fmt.Sprint("b", s), short)
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
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, run.Close())
		for _, host := range r.hosts {
			require.NoError(t, host.Close())
		}
	})
	return run
}

// param adds a parameter to a stage: what the level leaves of it.
func (a *affine) param(t testing.TB, r *replicated, replica int, name string, n int) {
	first, count := runner.Owned[buffer](a.dev.(runner.Sharded[buffer]), name, n, replica, r.replicas)
	of := func(level int) (int, int) {
		if r.replicas > 1 && r.shard >= level {
			return first, count
		}
		return 0, n
	}
	use := batchctx.Use[buffer]{Name: name, Elements: n}
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
			if count == 0 || a.last && p == 2 && r.ranks == 1 {
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
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
		if !e.Wants("x") {
			return nil
		}
		dev := r.cfg.Spaces[e.Rank()].(kernels.Device)
		h := e.Must(dev.Alloc(memory.Entry, kernels.Float32, width))
		var x []float32
		if host, ok := dev.(*kernels.Host); ok {
			x = host.Float32s(h)
		}
		for i := range x {
			x[i] = float32((i*5+e.Index()*17)%29) / 32
		}
		e.Put("x", h)
		return nil
	})
}

// train runs steps and returns the weights, and the last result.
func (r *replicated) train(t testing.TB, batches ...int) (map[string][]float32, *runner.Result) {
	t.Helper()
	run := r.build(t)
	var result *runner.Result
	for _, m := range batches {
		var err error
		result, err = run.Step(t.Context(), m, r.source())
		require.NoError(t, err)
		require.NoError(t, result.Update(r.update))
	}
	evaluated, err := run.Evaluate(t.Context(), r.replicas, r.source())
	require.NoError(t, err)
	require.Zero(t, evaluated.Excess)
	require.Zero(t, result.Excess)
	return r.weights(t), result
}

// TestReplicasTrainOneModel trains one model with 1, 2 and 3 replicas on one and two ranks, at every
// level. The weights of all levels are equal bit by bit, and those of all numbers of replicas nearly,
// also if the replicas have different numbers of microbatches, and with tied parameters (L5, L9).
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
	profile, err := runner.Record(t.Context(), null.cfg, runner.Shape[buffer]{Name: "only", Source: null.source()})
	require.NoError(t, err)
	return profile
}

// TestReplicasArePlanned compares the planned peak of every rank with the measured one, class by
// class, with 4 replicas at every level (L6), and the bytes of gradients and weights with 4/R bytes of
// an element that is sharded and 4 of one that is not.
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
		planned, err := run.Prepare(t.Context(), 9, r.source())
		require.NoError(t, err)
		for range 2 {
			result, err := run.Step(t.Context(), 9, r.source())
			require.NoError(t, err)
			require.True(t, result.Planned)
			require.NoError(t, result.Update(r.update))
			for rank, got := range result.Ranks {
				require.Equal(t, got.PeakPlanned, got.Peak, "level %d, rank %d", shard, rank)
			}
			// Replica 0 has most microbatches, which Prepare planned for.
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
		_, err = run.Evaluate(t.Context(), 5, r.source())
		require.NoError(t, err)

		// Rank 0 of replica 0 has stages 0 and 2: two weights w, the short b0 and b2, and t.
		elements := int64(3*width + 2*short)
		bytes := map[int]int64{0: 8 * elements, 1: 8 * elements, 2: 4*elements + 4*elements/replicas, 3: 8 * elements / replicas}[shard]
		require.InDelta(t, bytes, resident, 64+16*2*3*replicas, "level %d: weights and gradients", shard)
	}
}

// TestJoinedPairsGatherTwoStages trains at level 3 with a plan that joins pairs, whose two stages
// are gathered at once unless the configuration says another number.
func TestJoinedPairsGatherTwoStages(t *testing.T) {
	v := schedule.Wave(2, 4)
	want, _ := (&replicated{replicas: 2, ranks: 2, rule: schedule.DualPipeV, place: v}).train(t, 9)
	have, _ := (&replicated{replicas: 2, ranks: 2, shard: 3, rule: schedule.DualPipeV, place: v}).train(t, 9)
	require.Equal(t, want, have)
	r := &replicated{replicas: 2, ranks: 2, shard: 3, rule: schedule.DualPipeV, place: v}
	r.change = func(cfg *runner.Config[buffer]) { cfg.Replicas.Gathered = 1 }
	_, err := r.build(t).Step(t.Context(), 9, r.source())
	require.ErrorContains(t, err, "there is one active stage, but plan \"dualpipev\" has joined pairs")
}
