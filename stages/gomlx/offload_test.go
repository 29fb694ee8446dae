package gomlx_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/gomlx"
)

// deep is config with a hidden layer in each stage, so that each stage saves tensors.
func deep(n int) gomlx.Config {
	cfg := config(n)
	for i, s := range cfg.Stages {
		cfg.Stages[i].Graph = func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			x := layers.Dense(scope.In("hidden%d", i), in[0], true, 4*width)
			return s.Graph(scope, []*graph.Node{activation.Apply(activation.TypeTanh, x)})
		}
	}
	return cfg
}

// offloading returns a model and its runner, which offloads what it can.
func offloading(t *testing.T, cfg gomlx.Config, offload runner.Offload, classes ...map[string]shapes.Shape) (*gomlx.Model, *runner.Runner[gomlx.T]) {
	m := newModel(t, cfg)
	profile, err := m.Profile(t.Context(), classes...)
	require.NoError(t, err)
	rc := m.Runner()
	rc.Memory = runner.Memory{Profile: profile, Offload: offload}
	run := newRunner(t, rc)
	t.Cleanup(func() {
		require.NoError(t, run.Close())
		m.Close()
	})
	return m, run
}

// trainSteps trains for some steps and returns the last one.
func trainSteps(t *testing.T, m *gomlx.Model, run *runner.Runner[gomlx.T], steps, microbatches int, from runner.Source[gomlx.T]) (last *runner.Result) {
	for range steps {
		step := runStep(t, run, microbatches, from)
		require.Equal(t, 2, step.Books)
		require.Equal(t, memory.Growth{Audited: true}, step.Growth)
		require.NoError(t, step.Update(m.Update))
		last = step
	}
	return last
}

// TestOffload: a step that offloads gives the same bits as one that does not and as GoMLX's trainer,
// and has a lower peak (not higher for zb-v). The peak of its far memory is the planned one, and the
// peak on the device is at most the planned one.
func TestOffload(t *testing.T) {
	const steps, microbatches = 3, 8
	for _, c := range []struct {
		schedule      string
		ranks, stages int
	}{{"1f1b", 1, 4}, {"1f1b", 2, 4}, {"1f1b", 4, 4}, {"interleaved", 1, 4}, {"interleaved", 2, 4}, {"zb-v", 1, 2}, {"zb-v", 2, 4}} {
		t.Run(fmt.Sprint(c.schedule, c.ranks), func(t *testing.T) {
			want, _ := reference(t, deep(c.stages), steps, microbatches)
			var peaks []int64
			for _, offload := range []runner.Offload{{}, {Share: 1}, {Share: 0.9, Folder: t.TempDir()}} {
				cfg := deep(c.stages)
				cfg.Schedule, cfg.Ranks = c.schedule, c.ranks
				m, run := offloading(t, cfg, offload)
				prepared, err := run.Prepare(t.Context(), microbatches, nil)
				require.NoError(t, err)
				plan, _ := prepared.(*layout.Memory)
				step := trainSteps(t, m, run, steps, microbatches, source(m))
				require.Equal(t, want, values(t, cfg.Store))
				require.False(t, step.Planned)
				peak := int64(0)
				for r, rank := range step.Ranks {
					peak = max(peak, rank.Peak-rank.Live)
					switch {
					case offload.Share == 0:
						require.Nil(t, plan)
						require.Zero(t, rank.FarPeak)
					case plan.Ranks[r].Far == nil:
						require.Zero(t, rank.FarPeak)
					default:
						require.Equal(t, plan.Ranks[r].Far.Height, rank.FarHeight)
						require.Equal(t, plan.Ranks[r].Far.Peak.Bytes, rank.FarPeak)
						require.LessOrEqual(t, rank.Peak-rank.Live, plan.Ranks[r].Peak.Bytes)
					}
				}
				require.Equal(t, offload.Share > 0, step.FarPeak > 0)
				peaks = append(peaks, peak)
			}
			t.Log(peaks)
			require.LessOrEqual(t, peaks[1], peaks[0])
			require.True(t, c.schedule == "zb-v" || peaks[1] < peaks[0], peaks) // there W takes most, and it stays
		})
	}
}

// TestOffloadShapes: microbatches of any of the recorded shapes are offloaded.
func TestOffloadShapes(t *testing.T) {
	entry := func(n int) map[string]shapes.Shape {
		return map[string]shapes.Shape{"x": shapes.Make(dtypes.Float32, n, 4), "y": shapes.Make(dtypes.Float32, n, 2)}
	}
	var weights []map[string][]float32
	for _, share := range []float64{0, 1} {
		cfg := deep(4)
		cfg.Schedule = "interleaved"
		m, run := offloading(t, cfg, runner.Offload{Share: share}, entry(rows), entry(3))
		step := trainSteps(t, m, run, 2, 8, runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
			x, y := data(e.Index())
			n := []int{rows, 3}[e.Index()%2]
			e.Put("x", e.Must(m.Devices[0].Floats(memory.Entry, x[:4*n], n, 4)))
			e.Put("y", e.Must(m.Devices[0].Floats(memory.Entry, y[:2*n], n, 2)))
			return nil
		}))
		require.Equal(t, share > 0, step.FarPeak > 0)
		weights = append(weights, values(t, cfg.Store))
	}
	require.Equal(t, weights[0], weights[1])
}

// TestOffloadProcesses: processes offload too, with the profile of a model that has all ranks.
func TestOffloadProcesses(t *testing.T) {
	make := func() gomlx.Config {
		cfg := deep(4)
		cfg.Schedule = "interleaved"
		return cfg
	}
	whole := make()
	whole.Ranks = 2
	all := newModel(t, whole)
	defer all.Close()
	profile, err := all.Profile(t.Context())
	require.NoError(t, err)
	list, end := processes(t, 1, 2, make, func(cfg *runner.Config[gomlx.T]) {
		cfg.Memory = runner.Memory{Profile: profile, Offload: runner.Offload{Share: 1}}
	})
	defer end()
	_, err = list[1].m.Profile(t.Context())
	require.ErrorContains(t, err, "this process has 1 of 2 ranks")
	want, _ := reference(t, make(), 2, 8)
	far := [2]int64{}
	for range 2 {
		together(2, func(i int) {
			step, err := list[i].run.Step(t.Context(), 8, source(list[i].m))
			if assert.NoError(t, err) && assert.NoError(t, step.Update(list[i].m.Update)) {
				far[i] = step.FarPeak
			}
		})
	}
	require.Positive(t, far[0])
	require.Equal(t, far[0], far[1])
	got := values(t, list[1].cfg.Store)
	for _, path := range []string{"/layer1/dense/weights", "/hidden3/dense/weights"} { // of its stages
		require.NotEmpty(t, want[path])
		require.Equal(t, want[path], got[path])
	}
}

// TestOffloadFaults: an error of far memory, and a backend whose buffers the host cannot access, end
// the step. Nothing is lost, and the next step works.
func TestOffloadFaults(t *testing.T) {
	for name, says := range map[string]string{
		"changed": "offload: the loaded bytes differ from the stored bytes",
		"distant": `gomlx: the host cannot access the buffers of backend "`,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := deep(4)
			cfg.Schedule = "interleaved"
			far := &spoilt{}
			m, run := offloading(t, cfg, runner.Offload{Share: 1, Range: func(int) (memory.Range, error) { return far, nil }})
			backend := m.Devices[0].Backend()
			host := backend.Backend
			if far.spoils = name == "changed"; !far.spoils {
				backend.Backend = distant{host}
			}
			live := m.Devices[0].Live()
			_, err := run.Step(t.Context(), 8, source(m))
			require.ErrorContains(t, err, says)
			require.Equal(t, live, m.Devices[0].Live())
			far.spoils, backend.Backend = false, host
			trainSteps(t, m, run, 2, 8, source(m))
			want, _ := reference(t, deep(4), 2, 8)
			require.Equal(t, want, values(t, cfg.Store))
		})
	}
}

// spoilt is far memory that changes a byte.
type spoilt struct {
	bytes  [1 << 16]byte
	spoils bool
}

func (s *spoilt) Page() int64                   { return 4096 }
func (s *spoilt) Reserve(int64) error           { return nil }
func (s *spoilt) Commit(int64, int64) error     { return nil }
func (s *spoilt) Discard(int64, int64) error    { return nil }
func (s *spoilt) Present(low, high int64) int64 { return high - low }
func (s *spoilt) Release() error                { return nil }

func (s *spoilt) WriteAt(p []byte, off int64) (int, error) { return copy(s.bytes[off:], p), nil }

func (s *spoilt) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, s.bytes[off:])
	if s.spoils {
		p[0]++
	}
	return n, nil
}

// TestProfileOfPlainStages records stages without variables, on ranks that have no other buffers.
func TestProfileOfPlainStages(t *testing.T) {
	cfg := around(one(func(_ *model.Scope, x *graph.Node) *graph.Node {
		return activation.Apply(activation.TypeTanh, graph.Sin(x))
	}), []int{4, 6})
	cfg.Ranks, cfg.Schedule = 3, "1f1b"
	m := newModel(t, cfg)
	defer m.Close()
	profile, err := m.Profile(t.Context())
	require.NoError(t, err)
	require.NoError(t, profile.Validate())
	require.Len(t, profile.Shapes[0].Stages, 3)
	for _, d := range m.Devices {
		require.Zero(t, d.Live())
	}
}
