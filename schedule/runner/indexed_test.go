package runner_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// readers is one stage on each rank. The first reads "points" and the last "labels". The tensors
// between them have one element, and nothing trains.
type readers struct {
	devs []kernels.Compute
	cfg  runner.Config[buffer]
}

func newReaders(t *testing.T, ranks int, null bool) *readers {
	r := &readers{cfg: runner.Config[buffer]{Schedule: "1f1b", Losses: objective, Topology: runner.Topology[buffer]{Capacity: 1}}}
	for rank := range ranks {
		dev := device(t, null)
		grad, err := dev.Alloc(memory.Resident, kernels.Float32, 1)
		require.NoError(t, err)
		var d stages.Decl[buffer]
		var points, labels batchctx.Part
		var sum batchctx.Loss
		var label [1]float32
		w := d.Param("w"+string(rune('0'+rank)), grad)
		if rank == 0 {
			points = d.Part("points")
		} else {
			d.Inputs("h")
		}
		if rank == ranks-1 {
			labels = d.Part("labels", batchctx.AtForward|batchctx.AtBackward)
			sum = d.Loss(objective[0].Name)
		} else {
			d.Outputs("h")
		}
		r.devs = append(r.devs, dev)
		r.cfg.Stages = append(r.cfg.Stages, d.Stage("stage", func(_ context.Context, mb batchctx.Microbatch[buffer], _, out []buffer) error {
			if rank == 0 {
				mb.Part(points)
			}
			if rank == ranks-1 {
				mb.Check(dev.ReadFloat32(label[:], mb.Part(labels)))
				mb.Loss(sum, float64(label[0]), 1)
				return nil
			}
			out[0] = mb.Must(dev.Alloc(memory.Activation, kernels.Float32, 1))
			return nil
		}, func(_ context.Context, mb batchctx.Microbatch[buffer], _, gradIn []buffer) error {
			mb.Grad(w)
			if rank == ranks-1 {
				mb.Part(labels)
				mb.LossSeed(sum)
				mb.Release(mb.Must(dev.Alloc(memory.Workspace, kernels.Float32, 3))) // at the address of points
			}
			if gradIn != nil {
				gradIn[0] = mb.Must(dev.Alloc(memory.ActGrad, kernels.Float32, 1))
			}
			return nil
		}))
	}
	r.cfg.Spaces = runner.Spaces(r.devs...)
	return r
}

// put allocates a part with one element in the space of its rank.
func (r *readers) put(e batchctx.Entry[buffer], part string, value float32) {
	dev := r.devs[e.Rank()]
	b := e.Must(dev.Alloc(memory.Entry, kernels.Float32, 1))
	e.Check(dev.WriteFloat32(b, []float32{value}))
	e.Put(part, b)
}

// An Indexed or IndexedShapes source that depends on more than the index is an error that names the part: if two
// ranks make different parts, and if one rank makes different parts in two calls.
func TestIndexedIsAFunctionOfTheIndex(t *testing.T) {
	for name, tc := range map[string]struct {
		fill func(r *readers) func(e batchctx.Entry[buffer])
		says string
	}{
		"a function": {fill: func(r *readers) func(e batchctx.Entry[buffer]) {
			return func(e batchctx.Entry[buffer]) {
				random := rand.New(rand.NewPCG(1, uint64(e.Index())))
				if e.Wants("points") {
					r.put(e, "points", random.Float32())
				}
				r.put(e, "labels", float32(e.Index()))
			}
		}},
		"another order on one rank": {says: ` and 2 make different "labels"`, fill: func(r *readers) func(e batchctx.Entry[buffer]) {
			return func(e batchctx.Entry[buffer]) {
				r.put(e, "points", float32(e.Index()))
				r.put(e, "labels", float32(e.Index()+e.Rank()/2))
			}
		}},
		"a stream of draws": {says: `makes a different "labels" the second time`, fill: func(r *readers) func(e batchctx.Entry[buffer]) {
			draws := make([]*rand.Rand, len(r.devs))
			for rank := range draws {
				draws[rank] = rand.New(rand.NewPCG(1, 2))
			}
			return func(e batchctx.Entry[buffer]) {
				r.put(e, "points", 1)
				r.put(e, "labels", draws[e.Rank()].Float32())
			}
		}},
		"what leaks": {says: "neither released nor handed over", fill: func(r *readers) func(e batchctx.Entry[buffer]) {
			return func(e batchctx.Entry[buffer]) {
				r.put(e, "points", 1)
				r.put(e, "labels", 1)
				e.Must(r.devs[e.Rank()].Alloc(memory.Entry, kernels.Float32, 1))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReaders(t, 3, false)
			r.cfg.CheckSource = true
			run := newRunner(t, r.cfg)
			fill := tc.fill(r)
			indexed := func(_ context.Context, e batchctx.Entry[buffer]) error {
				fill(e)
				return nil
			}
			for _, source := range []runner.Source[buffer]{runner.Indexed(indexed), runner.IndexedShapes(indexed, func(int) int { return 0 })} {
				for _, step := range []func(context.Context, int, runner.Source[buffer]) (*runner.Result, error){run.Step, run.Evaluate} {
					_, err := step(t.Context(), 5, source)
					if tc.says == "" {
						require.NoError(t, err)
						continue
					}
					require.ErrorContains(t, err, tc.says)
					if name != "what leaks" {
						require.ErrorIs(t, err, runner.ErrIndexed)
					}
					for _, dev := range r.devs {
						require.EqualValues(t, 4, dev.Live())
					}
				}
			}
			require.NoError(t, run.Close())
		})
	}
}

// CheckSource is refused if a space cannot hash parts.
func TestCheckSourceNeedsSpacesThatHash(t *testing.T) {
	cfg := config(chain())
	cfg.CheckSource = true
	require.ErrorContains(t, cfg.Validate(), "CheckSource")
}

// Without CheckSource, sources are checked in builds with -tags invariants, and not in others.
func TestSourcesAreAskedOnce(t *testing.T) {
	r := newReaders(t, 2, false)
	run := newRunner(t, r.cfg)
	var asked [2]int
	runStep(t, run, 5, runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
		asked[e.Rank()]++
		r.put(e, "points", 1)
		r.put(e, "labels", 1)
		return nil
	}))
	want := [2]int{5, 5}
	if invariants.Enabled {
		want = [2]int{10, 10}
	}
	require.Equal(t, want, asked)
}
