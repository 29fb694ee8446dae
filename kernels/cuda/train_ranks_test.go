package cuda_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

const cudaTokens, cudaMicrobatches = 8, 4

// cudaConfig returns the configuration of a small model with a recipe, which is nil for float32.
func cudaConfig(recipe fp8.Recipe) transformer.Config {
	return transformer.Config{Vocabulary: 24, Width: 16, Layers: 1, Heads: 2, Context: cudaTokens, Seed: 3, FP8: recipe}
}

// cudaAlone is a plan of three stages on one device.
var cudaAlone = runner.Plan{Placement: schedule.Looped(1, 3), Rule: schedule.DepthFirst}

// cudaRun trains a model, on a device for each rank of a plan.
type cudaRun struct {
	t     *testing.T
	model *transformer.Model
	run   *runner.Runner[kernels.Buffer]
	devs  []kernels.Compute
	done  int
	last  *runner.Result
	peaks []int64 // of the first device, after each step
}

// startCUDA starts a run whose memory was planned from a dry run. change may be nil.
func startCUDA(t *testing.T, model transformer.Config, plan runner.Plan, change func(*runner.Config[kernels.Buffer]), devs ...kernels.Compute) *cudaRun {
	var nulls []kernels.Compute
	for _, d := range devs {
		nulls = append(nulls, kernels.NewNull(d))
	}
	dry, cfg := cudaModel(t, model, plan, nulls...)
	profile, err := record.Stages(t.Context(), cfg, record.Shape[kernels.Buffer]{Name: "all", Source: cudaSource(0, nulls...)})
	require.NoError(t, err)
	require.NoError(t, dry.Close())
	for _, d := range nulls {
		require.NoError(t, d.(*kernels.Null).Close())
	}
	m, cfg := cudaModel(t, model, plan, devs...)
	cfg.Memory.Profile = profile
	if change != nil {
		change(&cfg)
	}
	run, err := runner.New(cfg)
	require.NoError(t, err)
	return &cudaRun{t: t, model: m, run: run, devs: devs}
}

// cudaSource returns the microbatches of a step on the devices of the ranks.
func cudaSource(step int, devs ...kernels.Compute) runner.Source[kernels.Buffer] {
	var sources []runner.Source[kernels.Buffer]
	for _, dev := range devs {
		sources = append(sources, runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			var tokens, labels []int32
			var weights []float32
			for i := range cudaTokens {
				tokens = append(tokens, int32((7*i+5*entry.Index()+step%2)%24))
				labels = append(labels, (tokens[i]+7)%24)
				weights = append(weights, float32(1+i%2))
			}
			transformer.Put(dev, entry, tokens, labels, weights)
			return nil
		}))
	}
	if len(sources) == 1 {
		return sources[0]
	}
	return runner.PerRank(sources...)
}

// cudaModel makes a model on the devices of the ranks, and the configuration of its runner.
func cudaModel(t *testing.T, model transformer.Config, plan runner.Plan, devs ...kernels.Compute) (*transformer.Model, runner.Config[kernels.Buffer]) {
	var places []kernels.Compute
	for _, rank := range plan.Placement.Rank {
		places = append(places, devs[rank])
	}
	m, err := transformer.NewOn(model, places)
	require.NoError(t, err)
	cfg := runner.Config[kernels.Buffer]{
		Stages: m.Stages(), Plan: plan,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	}
	for _, d := range devs {
		cfg.Spaces = append(cfg.Spaces, d)
	}
	return m, cfg
}

// steps trains for some steps and returns their losses and gradient norms.
func (r *cudaRun) steps(n int) (numbers []float64) {
	for range n {
		result, err := r.run.Step(r.t.Context(), cudaMicrobatches, cudaSource(r.done, r.devs...))
		require.NoError(r.t, err)
		_, err = r.model.RollScales(r.t.Context(), nil)
		require.NoError(r.t, err)
		require.NoError(r.t, r.model.Update(transformer.AdamW{LearningRate: 0.01}, result, 1))
		numbers = append(numbers, result.Loss(transformer.LossName), result.GradNorm)
		r.done, r.last = r.done+1, result
		var stats memory.Stats
		r.devs[0].Stats(&stats)
		r.peaks = append(r.peaks, stats.Peak)
	}
	return numbers
}

func (r *cudaRun) close() {
	require.NoError(r.t, errors.Join(r.run.Close(), r.model.Close()))
	for _, d := range r.devs {
		require.Zero(r.t, d.Live())
		require.NoError(r.t, d.(interface{ Close() error }).Close())
	}
}

func cudaHost(t *testing.T) kernels.Compute {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	require.NoError(t, err)
	return host
}

// cudaFake returns a device over a driver in Go.
func cudaFake(t *testing.T, seed uint64, cfg cuda.Config) (*cuda.Device, *fakecuda.Driver) {
	fake := fakecuda.New(seed, 16<<20, 4096)
	dev := opened(t, fake, cfg)
	fake.Follow(dev.All)
	return dev, fake
}

// Two ranks on two devices give the same bits as one device with another plan (L9), whether the
// machine lets them copy from each other or not, with either kind of products; in bfloat16 the
// results are close to float32.
func TestCUDARanks(t *testing.T) {
	var inFloat32 []float64
	for _, products := range []cuda.Products{cuda.Float32, cuda.BFloat16} {
		dev, _ := cudaFake(t, 1, cuda.Config{Products: products})
		one := startCUDA(t, cudaConfig(nil), cudaAlone, nil, dev)
		want := one.steps(2)
		one.close()
		if inFloat32 == nil {
			inFloat32 = want
		}
		require.InDeltaSlice(t, inFloat32, want, 0.02)
		for _, peers := range [][][2]int{nil, {{0, 1}, {1, 0}}} {
			if peers == nil && products != cuda.Float32 && !*testkit.Long {
				continue
			}
			var devs []kernels.Compute
			machine := fakecuda.NewMachine(2, 2, 16<<20, 4096, peers...)
			for _, fake := range machine { // books belong to the goroutine of their rank, so that none is checked
				dev := opened(t, fake, cuda.Config{Products: products})
				devs = append(devs, dev)
			}
			two := startCUDA(t, cudaConfig(nil), runner.Plan{Placement: schedule.Looped(2, 2), Rule: schedule.OneFOneB}, nil, devs...)
			require.Equal(t, want, two.steps(2))
			for _, fake := range machine {
				require.Equal(t, peers != nil, fake.Calls("CopyPeer") > 0)
			}
			two.close()
		}
	}
}

// A device that offloads its saved state to page-locked memory gives the same bits as one that does
// not, in float32 on one rank and on two, and in FP8. Both memories have the planned peaks.
func TestCUDAOffload(t *testing.T) {
	delayed, err := fp8.Named("delayed")
	require.NoError(t, err)
	for _, recipe := range []fp8.Recipe{nil, delayed} {
		for ranks := 1; ranks <= 2 && (ranks == 1 || recipe == nil); ranks++ {
			plan := runner.Plan{Placement: schedule.Looped(ranks, 4), Rule: schedule.GPipe}
			var want []float64
			for _, share := range []float64{0, 1} {
				var devs []kernels.Compute
				for _, fake := range fakecuda.NewMachine(3, ranks, 16<<20, 4096) {
					dev := opened(t, fake, cuda.Config{})
					if ranks == 1 { // the books of several belong to goroutines
						fake.Follow(dev.All)
					}
					devs = append(devs, dev)
				}
				run := startCUDA(t, cudaConfig(recipe), plan, func(cfg *runner.Config[kernels.Buffer]) { cfg.Memory.Offload.Share = share }, devs...)
				got := run.steps(2)
				prepared, err := run.run.Prepare(t.Context(), cudaMicrobatches, nil)
				require.NoError(t, err)
				for i, did := range run.last.Ranks {
					require.Equal(t, did.PeakPlanned, did.Peak)
					if _, far := prepared.Layouts(i); far != nil {
						highest := slices.MaxFunc(far.Levels, func(a, b memory.Level) int { return cmp.Compare(a.Peak, b.Peak) })
						require.Equal(t, highest.Peak, did.FarPeak)
					}
				}
				require.Equal(t, share > 0, run.last.FarPeak > 0)
				if want == nil {
					want = got
				}
				require.Equal(t, want, got)
				run.close()
			}
		}
	}
}

// A recipe's codes, scales and tallies equal those of the host to the bit, given equal inputs,
// for every role; and a model trains in FP8 on the device close to the host.
func TestCUDAFP8(t *testing.T) {
	const rows, cols = 19, 128
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64()))
	}
	host := cudaHost(t)
	dev, _ := cudaFake(t, 1, cuda.Config{})
	for _, name := range fp8.Names {
		recipe, err := fp8.Named(name)
		require.NoError(t, err)
		for _, role := range []fp8.Role{fp8.Input, fp8.Weight, fp8.GradOutput} {
			quantized := func(d kernels.Compute) (all [][]byte, tally []int32) {
				mark := d.Mark()
				alloc := func(dtype kernels.DType, n int) kernels.Buffer {
					return allocated(t, d, memory.FP8, dtype, n)
				}
				op := recipe.Quantize(role)
				op.X, op.Rows, op.Cols, op.Key = alloc(kernels.Float32, len(x)), rows, cols, kernels.Key{Seed: 7, Step: 3}
				require.NoError(t, d.WriteFloat32(op.X, x))
				op.Tally.Buffer, tally = alloc(kernels.Int32, kernels.TallyWords), make([]int32, kernels.TallyWords)
				require.NoError(t, d.WriteInt32(op.Tally.Buffer, tally))
				e := recipe.Encoding(role)
				for _, q := range []*kernels.Quantized{&op.Rowwise, &op.Columnwise} {
					*q = kernels.Quantized{Encoding: e, Rows: rows, Cols: cols}
					if q == &op.Columnwise {
						q.Rows, q.Cols = cols, rows
					}
					q.Data = alloc(kernels.Uint8, e.Bytes(q.Rows, q.Cols))
				}
				require.NoError(t, d.Quantize(op))
				for _, q := range []kernels.Quantized{op.Rowwise, op.Columnwise} {
					bytes := make([]byte, q.Data.N)
					require.NoError(t, d.ReadUint8(bytes, q.Data))
					all = append(all, bytes)
				}
				require.NoError(t, d.ReadInt32(tally, op.Tally.Buffer))
				d.Reclaim(mark)
				return all, tally
			}
			want, wantTally := quantized(host)
			got, tally := quantized(dev)
			require.Equal(t, want, got, "%s, %v", name, role)
			require.Equal(t, wantTally, tally, "%s, %v", name, role)
		}
	}
	recipe, err := fp8.Named("delayed")
	require.NoError(t, err)
	onHost, onDevice := startCUDA(t, cudaConfig(recipe), cudaAlone, nil, host), startCUDA(t, cudaConfig(recipe), cudaAlone, nil, dev)
	require.InDeltaSlice(t, onHost.steps(3), onDevice.steps(3), 0.01)
	onHost.close()
	onDevice.close()
}

// save writes weights and moments to a checkpoint, and load reads them.
func (r *cudaRun) save(dir string) {
	var tensors []safetensors.Tensor
	r.each(func(name string, p *transformer.Parameter, b kernels.Buffer) {
		tensors = append(tensors, safetensors.Load(name, p.Shape, func() ([]float32, error) {
			x := make([]float32, b.N)
			return x, p.Device.ReadFloat32(x, b)
		}))
	})
	require.NoError(r.t, checkpoint.Save(dir, checkpoint.State{Step: int64(r.done)}, tensors...))
}

func (r *cudaRun) load(dir string) {
	c, err := checkpoint.Open(dir)
	require.NoError(r.t, err)
	r.each(func(name string, p *transformer.Parameter, b kernels.Buffer) {
		x := make([]float32, b.N)
		require.NoError(r.t, checkpoint.Read(c, name, p.Shape, x))
		require.NoError(r.t, p.Device.WriteFloat32(b, x))
	})
	r.done, r.model.Updates = int(c.Step), c.Step
	require.NoError(r.t, c.Close())
}

func (r *cudaRun) each(do func(name string, p *transformer.Parameter, b kernels.Buffer)) {
	for _, p := range r.model.Parameters() {
		do(p.Name, p, p.Weight)
		do("m."+p.Name, p, p.M)
		do("v."+p.Name, p, p.V)
	}
}

// Resuming from a checkpoint on the device gives the bits of an uninterrupted run; the host
// resumes from it with close results, and the other way round. Host and device write the same
// file for the same weights.
func TestCUDACheckpoint(t *testing.T) {
	host := func() kernels.Compute { return cudaHost(t) }
	fake := func(seed uint64) func() kernels.Compute {
		return func() kernels.Compute {
			dev, _ := cudaFake(t, seed, cuda.Config{})
			return dev
		}
	}
	start := func(dev kernels.Compute) *cudaRun { return startCUDA(t, cudaConfig(nil), cudaAlone, nil, dev) }
	for _, from := range []func() kernels.Compute{fake(1), host} {
		dir := t.TempDir()
		first := start(from())
		first.steps(1)
		first.save(dir)
		want := first.steps(1)
		first.close()
		again := start(from())
		again.load(dir)
		require.Equal(t, want, again.steps(1))
		again.close()
		for _, to := range []func() kernels.Compute{host, fake(2)} {
			other := start(to())
			other.load(dir)
			require.InDeltaSlice(t, want, other.steps(1), 1e-4)
			other.close()
		}
	}
}
