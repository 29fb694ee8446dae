package sim

import (
	"context"
	"fmt"
	"math"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// modelConfig returns the transformer of a scenario.
func (w *world) modelConfig() transformer.Config {
	cfg := transformer.Config{Vocabulary: 16, Width: 16, Layers: 2, Heads: 2, Context: 4, Dropout: 0.25, Recompute: w.Recompute, Seed: 1, Replicas: w.count(), Shard: w.Shard}
	if w.Copies {
		cfg.FP8 = fp8.CurrentScaling{}
	}
	return cfg
}

// newModel makes the transformer on the devices of the ranks.
func (w *world) newModel(devs []kernels.Compute) (*transformer.Model, error) {
	var places [][]kernels.Compute
	for replica := range w.count() {
		for s, rank := range w.placement.Rank {
			if s%w.placement.Depth() == 0 {
				places = append(places, nil)
			}
			places[len(places)-1] = append(places[len(places)-1], devs[replica*w.Ranks+rank])
		}
	}
	return transformer.NewOn(w.modelConfig(), places...)
}

// putTokens fills an entry with tokens that depend on its index.
func (w *world) putTokens(dev kernels.Device, e batchctx.Entry[T], index int) {
	n := w.size(index)
	tokens := make([]int32, n+1)
	for i := range tokens {
		tokens[i] = int32((7*index + 3*i) % 16)
	}
	transformer.Put(dev, e, tokens[:n], tokens[1:], slices.Repeat([]float32{float32(1 + index%2)}, n))
}

// numbers are the results of a step of the transformer, as bits.
type numbers struct {
	sum, weight, norm uint64
	grads             map[string][]uint32
}

// numbersOf returns the numbers of a result: the loss and, in training, the norm and the gradients.
// Those of replicas that shard state are left out.
func numbersOf(r *runner.Result, m *transformer.Model, training bool, shard int) (numbers, error) {
	v := r.Losses[0]
	n := numbers{sum: math.Float64bits(v.Sum), weight: math.Float64bits(v.Weight)}
	if !training {
		return n, nil
	}
	n.norm, n.grads = math.Float64bits(r.GradNorm), map[string][]uint32{}
	if shard > 0 {
		return n, nil
	}
	for _, p := range m.Parameters() {
		for c := range p.All() {
			x := make([]float32, c.Grad.N)
			if err := c.Device.ReadFloat32(x, c.Grad); err != nil {
				return n, err
			}
			bits := make([]uint32, len(x))
			for i := range x {
				bits[i] = math.Float32bits(x[i])
			}
			if first, more := n.grads[p.Name]; more && !slices.Equal(first, bits) {
				return n, fmt.Errorf("the uses of %s have two gradients (L9)", p.Name)
			}
			n.grads[p.Name] = bits
		}
	}
	return n, nil
}

// undisturbed is a step without faults, on one rank of each replica.
type undisturbed struct {
	m, replicas               int
	number                    int64
	training, copies, planned bool
}

var references = map[undisturbed]numbers{}

// reference returns the numbers of the current step without a fault, on one rank of each replica.
func (w *world) reference() (numbers, error) {
	key := undisturbed{w.m, w.count(), w.number, w.training, w.Copies, w.Planned}
	if n, ok := references[key]; ok {
		return n, nil
	}
	var spaces []*device // which divide gradients as those of the run do
	var places [][]kernels.Compute
	for range w.count() {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 22})
		if err != nil {
			return numbers{}, err
		}
		defer host.Close()
		dev := &device{host, &world{dry: true}}
		spaces, places = append(spaces, dev), append(places, []kernels.Compute{dev})
	}
	cfg := w.modelConfig()
	cfg.Shard = 0
	model, err := transformer.NewOn(cfg, places...)
	if err != nil {
		return numbers{}, err
	}
	defer model.Close()
	r, err := runner.New(runner.Config[T]{Schedule: "gpipe", Stages: model.Stages(), Spaces: runner.Spaces[T](spaces...), FirstStep: w.number, Replicas: runner.Replicas{Count: w.count()}})
	if err != nil {
		return numbers{}, err
	}
	defer r.Close()
	run := r.Evaluate
	if w.training {
		run = r.Step
	}
	result, err := run(context.Background(), w.m, runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
		w.putTokens(spaces[e.Rank()].Host, e, e.Index())
		return nil
	}))
	if err != nil {
		return numbers{}, err
	}
	references[key], err = numbersOf(result, model, w.training, 0)
	return references[key], err
}

// wrongModel returns the violation in the numbers of a step of the transformer, or nil.
func (w *world) wrongModel(r *runner.Result) error {
	want, err := w.reference()
	if err != nil {
		return err
	}
	got, err := numbersOf(r, w.model, w.training, w.Shard)
	if err != nil {
		return err
	}
	if got.sum != want.sum || got.weight != want.weight || got.norm != want.norm {
		return fmt.Errorf("step %d has loss, weight and norm %x, %x, %x, and without faults on one rank %x, %x, %x (L9)", w.number, got.sum, got.weight, got.norm, want.sum, want.weight, want.norm)
	}
	for name, bits := range want.grads {
		if w.Shard == 0 && !slices.Equal(bits, got.grads[name]) {
			return fmt.Errorf("the gradient of %s differs from the run without faults on one rank (L9)", name)
		}
	}
	return nil
}
