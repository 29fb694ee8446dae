package lifetime_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

type (
	buffer     = kernels.Buffer
	microbatch = batchctx.Microbatch[buffer]
)

// pipeline is a transformer in FP8 on two ranks, each with its own device: embedding and a
// block on the first, a block and the head on the second. Tensors between them are copied.
type pipeline struct {
	hosts  [2]*kernels.Host
	spies  [2]*spy
	model  *transformer.Model
	stages []stages.Stage[buffer]
}

// tokens is the length of a microbatch.
const tokens = 8

var decoder = transformer.Config{
	Vocabulary: 16, Width: width, Layers: 2, Heads: 2, Context: tokens, Seed: 1,
	FP8: fp8.DelayedScaling{Format: fp8.Hybrid}, FP8Attention: true,
}

func newPipeline(t *testing.T) *pipeline {
	t.Helper()
	p := &pipeline{}
	for rank := range p.hosts {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 24})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, host.Close()) })
		p.hosts[rank], p.spies[rank] = host, &spy{Host: host}
	}
	var err error
	p.model, err = transformer.NewOn(decoder, []kernels.Compute{p.spies[0], p.spies[0], p.spies[1], p.spies[1]})
	require.NoError(t, err)
	p.stages = p.model.Stages()
	return p
}

// live returns the live bytes on each device.
func (p *pipeline) live() (live [2]int64) {
	for rank, host := range p.hosts {
		live[rank] = host.Live()
	}
	return live
}

// group returns a runner for both ranks. passed is called for every microbatch that has passed its
// audit.
func (p *pipeline) group(t *testing.T, rule schedule.Rule, passed func(rank int, s *memory.Sample)) *runner.Runner[buffer] {
	t.Helper()
	cfg := runner.Config[buffer]{
		Stages:   p.stages,
		Losses:   []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Hooks:    runner.Hooks{Microbatch: func(s *memory.Sample) { passed(s.Rank, s) }},
		Plan:     runner.Plan{Rule: rule, Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1, 1}}},
		Topology: runner.Topology[buffer]{Capacity: 1},
	}
	for _, host := range p.hosts {
		cfg.Spaces = append(cfg.Spaces, host)
	}
	return newRunner(t, cfg)
}

// sources provides both ranks with microbatches of the same tokens.
func (p *pipeline) sources() runner.Source[buffer] {
	var list []runner.Source[buffer]
	for _, host := range p.hosts {
		list = append(list, runner.Indexed(func(_ context.Context, entry batchctx.Entry[buffer]) error {
			ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			transformer.Put(host, entry, ids, ids, []float32{1, 1, 1, 1, 1, 1, 1, 1})
			return nil
		}))
	}
	return runner.PerRank(list...)
}

// spy is a device that calls a mutant's functions when the stage uses the device.
type spy struct {
	*kernels.Host
	born        func(class memory.Class, b buffer)
	quantized   func(op kernels.Quantize)
	dequantized func(q kernels.Quantized)
}

func (s *spy) Alloc(class memory.Class, dtype kernels.DType, n int) (buffer, error) {
	b, err := s.Host.Alloc(class, dtype, n)
	if s.born != nil && err == nil {
		s.born(class, b)
	}
	return b, err
}

func (s *spy) Quantize(op kernels.Quantize) error {
	if s.quantized != nil {
		s.quantized(op)
	}
	return s.Host.Quantize(op)
}

func (s *spy) Dequantize(dst buffer, q kernels.Quantized, transposed bool) error {
	if s.dequantized != nil {
		s.dequantized(q)
	}
	return s.Host.Dequantize(dst, q, transposed)
}

// culprit is a stage of the model that leaks before its calls, or during them through the spy.
// Its functions may be nil.
type culprit struct {
	stages.Stage[buffer]
	spy               *spy
	weight            buffer // of the block's layer that widens fourfold
	forward, backward func(mb microbatch, in buffer)
	kept              []buffer // an element for each leak

	backwards, weights int // numbers of microbatches whose gradients of inputs and of weights were computed
}

// alloc allocates and keeps a buffer.
func (c *culprit) alloc(mb microbatch, class memory.Class, n int) {
	c.kept = append(c.kept, mb.Must(c.spy.Host.Alloc(class, kernels.Float32, n)))
}

// cacheWeight quantizes the weight in the first call, and keeps the result.
func (c *culprit) cacheWeight(mb microbatch, usage fp8.Usage) {
	if c.kept != nil {
		return
	}
	shape := fp8.Shape{Rows: decoder.Width, Cols: 4 * decoder.Width, Encoding: decoder.FP8.Encoding(fp8.Weight)}
	b := mb.Must(c.spy.Host.Alloc(memory.FP8, kernels.Uint8, shape.Bytes(usage)))
	c.kept = append(c.kept, b)
	op := kernels.Quantize{X: c.weight, Rows: shape.Rows, Cols: shape.Cols}
	if usage == fp8.Columnwise {
		op.Columnwise = shape.Half(usage, b)
	} else {
		op.Rowwise = shape.Half(usage, b)
	}
	mb.Check(c.spy.Host.Quantize(op))
}

func (c *culprit) Unwrap() stages.Stage[buffer] { return c.Stage }

func (c *culprit) Forward(ctx context.Context, mb microbatch, in, out []buffer) error {
	return c.call(c.forward, mb, in[0], func() error { return c.Stage.Forward(ctx, mb, in, out) })
}

func (c *culprit) Backward(ctx context.Context, mb microbatch, gradOut, gradIn []buffer) error {
	c.backwards++
	c.weights++
	return c.call(c.backward, mb, gradOut[0], func() error { return c.Stage.Backward(ctx, mb, gradOut, gradIn) })
}

func (c *culprit) BackwardInput(ctx context.Context, mb microbatch, gradOut, gradIn []buffer) error {
	c.backwards++
	return c.call(c.backward, mb, gradOut[0], func() error {
		return c.Stage.(stages.SplitBackward[buffer]).BackwardInput(ctx, mb, gradOut, gradIn)
	})
}

func (c *culprit) BackwardWeight(ctx context.Context, mb microbatch) error {
	c.weights++
	return c.Stage.(stages.SplitBackward[buffer]).BackwardWeight(ctx, mb)
}

// call runs the leak and the stage, and then disables the spy.
func (c *culprit) call(misuse func(mb microbatch, in buffer), mb microbatch, in buffer, run func() error) error {
	defer func() { c.spy.born, c.spy.quantized, c.spy.dequantized = nil, nil, nil }()
	if misuse != nil {
		misuse(mb, in)
	}
	return run()
}

// fp8Mutants are the thirteen leaks of training in eight bits in other projects, in the order of
// docs/lifetimes.md, each in a block of the pipeline.
var fp8Mutants = []struct {
	name      string
	recompute bool
	change    func(c *culprit)
	class     [2]memory.Class // by rank
	bytes     int64           // per leak
	// lawful returns how many of the kept buffers are leaks already: until a call takes a buffer from a
	// slot of its microbatch, the buffer is live legitimately. nil means all.
	lawful func(c *culprit) int
}{
	{
		// TransformerEngine #1935: ctx.tensor_objects outlives the restore.
		name: "1 the context of a backward keeps its saved tensor", class: onBoth(memory.FP8), bytes: inFP8(4*width, tokens),
		change: func(c *culprit) {
			c.backward = func(mb microbatch, _ buffer) {
				c.spy.dequantized = func(q kernels.Quantized) { // the first call is for the input of GELU
					c.kept, c.spy.dequantized = append(c.kept, mb.Retain(q.Data)), nil
				}
			}
		},
	},
	{
		// NeMo-RL #2003, verl #6953: module._fp8_workspaces.
		name: "2 the first microbatch quantizes the weight into the module's cache", class: onBoth(memory.FP8), bytes: inFP8(4*width, width),
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) { c.cacheWeight(mb, fp8.Columnwise) }
		},
	},
	{
		// TransformerEngine #2681, #2717: the transpose that the first backward caches.
		name: "3 the first backward caches the weight's other orientation", class: onBoth(memory.FP8), bytes: inFP8(width, 4*width),
		change: func(c *culprit) {
			c.backward = func(mb microbatch, _ buffer) { c.cacheWeight(mb, fp8.Rowwise) }
		},
	},
	{
		// TransformerEngine #1261, #1764: both layouts of an activation. Save takes one, so the
		// other has to be kept without it.
		name: "4 the other half of a saved tensor is kept", class: onBoth(memory.FP8), bytes: inFP8(tokens, width),
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) {
				c.spy.quantized = func(op kernels.Quantize) {
					if op.Columnwise.Rows > 0 { // the output of attention, whose columns are saved
						c.kept = append(c.kept, mb.Retain(op.Rowwise.Data))
					}
				}
			}
		},
	},
	{
		// at::empty({1}) for every quantization, which clear() skips. Here scales share the buffer
		// of their data, so the mutant must allocate one.
		name: "5 a scale has an allocation of its own", class: onBoth(memory.FP8), bytes: 4,
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) {
				c.spy.quantized = func(kernels.Quantize) { c.alloc(mb, memory.FP8, 1) }
			}
		},
	},
	{
		// Lists of histories that grow whenever a module is seen again.
		name: "6 a history is registered again", class: onBoth(memory.Resident), bytes: 4 * 2 * kernels.TallyWords,
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) {
				state, err := fp8.NewState(fp8.DelayedScaling{Format: fp8.Hybrid}, []fp8.Slot{{Name: "input"}})
				mb.Check(err)
				_, err = fp8.NewSlab(c.spy.Host, state, []int{0})
				mb.Check(err)
				c.kept = append(c.kept, buffer{})
			}
		},
	},
	{
		// The deque into which the first pass pushes scales and histories for the second.
		name: "7 scales are stashed for a recompute", recompute: true, class: onBoth(memory.Saved), bytes: 4 * 3,
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) { c.alloc(mb, memory.Saved, 3) }
		},
	},
	{
		// WeightGradStore: a queue of inputs and gradients whose popped elements are kept.
		name: "8 a queue of delayed weight gradients is not emptied", class: onBoth(memory.FP8), bytes: inFP8(width, tokens),
		lawful: func(c *culprit) int { return c.weights },
		change: func(c *culprit) {
			c.backward = func(mb microbatch, _ buffer) {
				c.spy.quantized = func(op kernels.Quantize) { // the first call is for the gradient of the block's output
					c.kept, c.spy.quantized = append(c.kept, mb.Retain(op.Columnwise.Data)), nil
				}
			}
		},
	},
	{
		// lru_cache around the workspace of products.
		name: "9 the workspace of a product is cached", class: onBoth(memory.Workspace), bytes: 4 * tokens * width,
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) {
				c.spy.born = func(class memory.Class, b buffer) {
					if class == memory.Workspace && c.kept == nil {
						c.kept = append(c.kept, mb.Retain(b))
					}
				}
			}
		},
	},
	{
		// _dummy_wgrads, by shape and type.
		name: "10 a dummy gradient is cached by its shape", class: onBoth(memory.ActGrad), bytes: 4 * width * 4 * width,
		change: func(c *culprit) {
			c.backward = func(mb microbatch, _ buffer) {
				if c.kept == nil {
					c.alloc(mb, memory.ActGrad, c.weight.N)
				}
			}
		},
	},
	{
		// NeMo-RL 04fc13775: ctx, run_function, the layer, its probabilities, ctx.
		name: "11 a recomputed call holds its input", recompute: true, class: fromPrevious, bytes: 4 * tokens * width,
		lawful: func(c *culprit) int { return c.backwards },
		change: func(c *culprit) {
			c.forward = func(mb microbatch, x buffer) {
				if mb.Pass() == batchctx.Train {
					c.kept = append(c.kept, mb.Retain(x))
				}
			}
		},
	},
	{
		// Fast-LLM #486: a logged loss with the tensor from which it was computed.
		name: "12 a logged number keeps its operand", class: fromPrevious, bytes: 4 * tokens * width,
		lawful: func(c *culprit) int { return c.backwards },
		change: func(c *culprit) {
			c.forward = func(mb microbatch, x buffer) { c.kept = append(c.kept, mb.Retain(x)) }
		},
	},
	{
		// NeMo-RL #2319: long-lived tables between short-lived buffers.
		name: "13 a small table is made within a step", class: onBoth(memory.Resident), bytes: 64,
		change: func(c *culprit) {
			c.forward = func(mb microbatch, _ buffer) {
				c.kept = append(c.kept, mb.Must(c.spy.AllocIn(memory.Metadata, kernels.Float32, 16)))
			}
		},
	},
}

// width is the width of the pipeline's model.
const width = 32

// inFP8 returns the bytes of one half of a tensor.
func inFP8(rows, cols int) int64 { return int64(decoder.FP8.Encoding(fp8.Input).Bytes(rows, cols)) }

func onBoth(class memory.Class) [2]memory.Class { return [2]memory.Class{class, class} }

// fromPrevious lists the classes of a block's input by rank: the second rank gets a copy of it.
var fromPrevious = [2]memory.Class{memory.Activation, memory.Transfer}

// TestFP8MutantsInAPipeline runs every mutant on each of the two ranks, with other microbatches in flight.
// The audit of the rank's first microbatch ends the step on both ranks and reports the bytes that the block
// has kept until then.
func TestFP8MutantsInAPipeline(t *testing.T) {
	for _, mutant := range fp8Mutants {
		for rank := range 2 {
			for plan, rule := range map[string]schedule.Rule{"1f1b": schedule.OneFOneB, "zb-h1": schedule.ZBH1} {
				t.Run(fmt.Sprintf("%s, rank %d, %s", mutant.name, rank, plan), func(t *testing.T) {
					p := newPipeline(t)
					before := p.live()
					stage := 1 + rank // the block of this rank
					c := &culprit{Stage: p.stages[stage], spy: p.spies[rank], weight: p.matrix(t, fmt.Sprintf("block%d.mlp.up.weight", rank))}
					mutant.change(c)
					p.stages[stage] = c
					if mutant.recompute {
						p.stages[stage] = stages.Recompute[buffer](c)
					}
					g := p.group(t, rule, func(at int, s *memory.Sample) {
						if at == rank {
							t.Errorf("microbatch %d passed its audit", s.Microbatch)
						}
					})
					_, err := g.Step(t.Context(), 6, p.sources())
					var found *batchctx.LeakError
					require.ErrorAs(t, err, &found)
					require.NotEmpty(t, c.kept)
					times := len(c.kept)
					if mutant.lawful != nil {
						times = mutant.lawful(c)
					}
					want := leak{stage, mutant.class[rank], mutant.bytes * int64(times)}
					require.Equal(t, want, leak{found.Stage, found.Class, found.Bytes}, "%v", err)
					require.Equal(t, rank, found.Rank)
					require.Equal(t, 0, found.Microbatch)
					if found.Class == memory.Resident {
						before[rank] += found.Bytes
					}
					require.Equal(t, before, p.live(), "everything is released after the error")
					require.NoError(t, g.Close())
					require.NoError(t, p.model.Close())
				})
			}
		}
	}
}

// matrix returns a weight by name.
func (p *pipeline) matrix(t *testing.T, name string) buffer {
	for _, param := range p.model.Parameters() {
		if param.Name == name {
			return param.Weight
		}
	}
	t.Fatalf("the model has no %s", name)
	return buffer{}
}

// TestFP8PipelineIsFlat trains the pipeline without a mutant.
func TestFP8PipelineIsFlat(t *testing.T) {
	p := newPipeline(t)
	before := p.live()
	for _, rule := range []schedule.Rule{schedule.OneFOneB, schedule.ZBH1} {
		g := p.group(t, rule, func(int, *memory.Sample) {})
		for range 2 {
			result, err := g.Step(t.Context(), 16, p.sources())
			require.NoError(t, err)
			require.Zero(t, result.Growth.Bytes)
			require.Equal(t, before, p.live())
			_, err = p.model.RollScales(t.Context(), nil)
			require.NoError(t, err)
		}
		_, err := g.Evaluate(t.Context(), 8, p.sources())
		require.NoError(t, err)
		require.Equal(t, before, p.live())
		require.NoError(t, g.Close())
	}
	require.NoError(t, p.model.Close())
	require.Equal(t, [2]int64{}, p.live())
}

// TestACopyKeptBeyondItsDropIsCaught keeps a copy of a weight that QUANTIZE has made. The step ends
// with an error at the microbatch after which the plan drops the copy.
func TestACopyKeptBeyondItsDropIsCaught(t *testing.T) {
	for _, m := range []int{1, 4} {
		p := newPipeline(t)
		before := p.live()
		c := &culprit{Stage: p.stages[2], spy: p.spies[1]}
		c.forward = func(mb microbatch, _ buffer) {
			if c.kept == nil {
				c.kept = append(c.kept, mb.Retain(mb.WeightCopy(1)))
			}
		}
		p.stages[2] = c
		g := p.group(t, schedule.GPipe, func(int, *memory.Sample) {})
		_, err := g.Step(t.Context(), m, p.sources())
		var found *batchctx.LeakError
		require.ErrorAs(t, err, &found)
		require.Equal(t, memory.FP8, found.Class)
		require.Equal(t, 1, found.Rank)
		require.Equal(t, m-1, found.Microbatch, "the last forward that reads it")
		require.Equal(t, before, p.live())
		require.NoError(t, g.Close())
		require.NoError(t, p.model.Close())
	}
}

// TestTablesAnchorNothing allocates long-lived tables between steps. They are on pages of a separate
// scope, so all pages of the steps are returned to the system.
func TestTablesAnchorNothing(t *testing.T) {
	p := newPipeline(t)
	host := p.hosts[0]
	g := p.group(t, schedule.OneFOneB, func(int, *memory.Sample) {})
	for range 8 {
		_, err := g.Step(t.Context(), 4, p.sources())
		require.NoError(t, err)
		_, err = p.model.RollScales(t.Context(), nil)
		require.NoError(t, err)
		_, err = host.AllocIn(memory.Metadata, kernels.Float32, 16)
		require.NoError(t, err)
	}
	tables := host.Scope(memory.Metadata).Live
	require.NoError(t, host.ReleasePages(nil, memory.StepScope, memory.Gradients))
	for _, scope := range []memory.Scope{memory.StepScope, memory.Gradients} {
		stats := host.Scope(scope)
		require.Zero(t, stats.Live+stats.Reserved, "%v", scope)
		require.LessOrEqual(t, stats.Pages, int64(0), "%v", scope)
	}
	require.Equal(t, tables, host.Scope(memory.Metadata).Live)
	require.NoError(t, host.RestorePages(nil))
	require.NoError(t, g.Close())
	require.NoError(t, p.model.Close())
}
