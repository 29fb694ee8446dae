package transformer

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// Model holds the parameters of a transformer and the stages that train them. A Model must be
// used by one goroutine at a time, and its methods must not be called while a step runs; each of
// its stages belongs to the goroutine of its device.
type Model struct {
	// Updates is the number of times that the weights have been updated. A checkpoint must store
	// it with the weights and the moments, and set it when it restores them.
	Updates int64
	// KeepLogits is the value from the configuration, or Record's choice: AllLogits or NoLogits.
	// After Record has chosen, set this field to the same value in the model that trains, before
	// its first step.
	KeepLogits int64
	// Sequences, if it is not nil, returns the sequences of a microbatch (Microbatch.Index), which
	// lie one after another in its Parts. Each sequence attends only to itself, its positions begin at 0,
	// and its random draws are keyed by its number. Except with Config.FP8, the gradients of the parameters
	// have the same bits as with one sequence per microbatch in the same order. Set Sequences only
	// between steps. The stages of all ranks call it, on their goroutines.
	Sequences func(microbatch int) []Sequence

	stages     []stages.Stage[kernels.Buffer]
	parameters []*Parameter
	buffers    []owned  // everything that the model owns
	scaling    *scaling // nil in float32
	shard      int      // Config.Shard; 0 with one replica
}

// New makes a model on a device and splits it over stageCount stages. The parts of the model are
// the embedding, the blocks and the head, in this order. Every stage gets the same number of
// consecutive parts; if they do not divide evenly, the first stages get one more. If there are
// more stages than parts, each part is a separate stage: the embedding is the first stage, the
// head is the last, the blocks are evenly spaced, and the stages in between are identities. The
// initial weights do not depend on the split.
//
// The device is borrowed: it must outlive the model, and must be the space of the runner that
// runs the stages. New also works on a kernels.Null.
func New(dev kernels.Compute, cfg Config, stageCount int) (*Model, error) {
	if stageCount < 1 || stageCount > schedule.MaxStages {
		return nil, fmt.Errorf("transformer: %d stages, want 1 to %d", stageCount, schedule.MaxStages)
	}
	return NewOn(cfg, slices.Repeat([]kernels.Compute{dev}, stageCount))
}

// NewOn is like New, but with a device for each stage: stage s is on devices[s], which must be
// the space of the rank that runs it. Stages on the same device share the weights of a parameter
// that they both use. If stages on several devices use a parameter, each device has a copy of its
// weights. The copies start out equal, and stay equal as long as the accumulator of every use
// holds the sum over all uses when Update is called, which the runner ensures.
//
// Several lists of the same length make one copy of the stages for each list, with the same
// parameters, for a schedule that runs copies of the model or for Config.Replicas. The lists of a
// replica must be consecutive, and no two replicas may share a device.
func NewOn(cfg Config, devices ...[]kernels.Compute) (*Model, error) {
	if err := errors.Join(cfg.Validate(), validate(devices, cfg.replicas())); err != nil {
		return nil, err
	}
	m := &Model{KeepLogits: cfg.KeepLogits}
	if cfg.replicas() > 1 {
		m.shard = cfg.Shard
	}
	b := newBuilder(cfg)
	b.keep, b.packed = &m.KeepLogits, &m.Sequences
	var all []stages.Stage[kernels.Buffer]
	for i, byStage := range devices {
		b.replica, b.used = i*cfg.replicas()/len(devices), map[string]bool{}
		part := 0
		for s, n := range spread(cfg.Layers+2, len(byStage)) {
			b.dev = byStage[s]
			all = append(all, b.stage(s, part, n))
			part += n
		}
	}
	var scaling *scaling
	if b.err == nil && cfg.FP8 != nil {
		scaling, b.err = b.scaling()
	}
	if b.err != nil {
		_ = release(b.buffers) // the first error is reported
		return nil, b.err
	}
	m.stages, m.parameters, m.buffers, m.scaling = all, b.parameters, b.buffers, scaling
	return m, nil
}

// validate reports every fault of the devices.
func validate(devices [][]kernels.Compute, replicas int) error {
	if len(devices) == 0 {
		return errors.New("transformer: no list of devices, want one for each copy of the model")
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("transformer: "+format, args...)) }
	if len(devices)%replicas != 0 {
		fault("%d lists of devices for %d replicas: give each replica as many", len(devices), replicas)
	}
	count, replicaOf := len(devices[0]), map[kernels.Compute]int{}
	if count < 1 || count > schedule.MaxStages/len(devices) {
		fault("devices for %d stages, want 1 to %d", count, schedule.MaxStages/len(devices))
	}
	for i, byStage := range devices {
		if len(byStage) != count {
			fault("devices for %d stages of copy %d, and for %d of copy 0", len(byStage), i, count)
		}
		for s, dev := range byStage {
			if dev == nil {
				fault("stage %d of copy %d has no device", s, i)
			} else if !reflect.ValueOf(dev).Comparable() {
				fault("the device of stage %d of copy %d is a %T, which is not comparable: use a pointer", s, i, dev)
			} else if other, known := replicaOf[dev]; known && other != i*replicas/len(devices) {
				fault("the device of stage %d of copy %d is also one of replica %d: give each replica its own", s, i, other)
			} else {
				replicaOf[dev] = i * replicas / len(devices)
			}
		}
	}
	return errors.Join(faults...)
}

// spread returns the number of parts of each stage.
func spread(parts, count int) []int {
	at := make([]int, count)
	if count > parts {
		for i := range parts {
			at[i*(count-1)/(parts-1)] = 1
		}
		return at
	}
	for s := range at {
		at[s] = parts / count
		if s < parts%count {
			at[s]++
		}
	}
	return at
}

// stage makes stage s from n parts, the first of which has the given number.
func (b *builder) stage(s, part, n int) stages.Stage[kernels.Buffer] {
	if n == 0 {
		return stages.Identity[kernels.Buffer](fmt.Sprintf("identity%d", s), stages.Port{Name: hidden})
	}
	parts := make([]stages.Stage[kernels.Buffer], n)
	for i := range parts {
		parts[i] = b.part(part + i)
	}
	if n == 1 || b.err != nil {
		return parts[0]
	}
	var joined stages.Stage[kernels.Buffer]
	joined, b.err = stages.Sequential(parts[0].Spec().Name+".."+parts[n-1].Spec().Name, parts...)
	return joined
}

// part makes one part: number 0 is the embedding, the last is the head.
func (b *builder) part(i int) stages.Stage[kernels.Buffer] {
	switch i {
	case 0:
		return asStage(b.embedding())
	case b.cfg.Layers + 1:
		return asStage(b.head())
	}
	block := b.block(i - 1)
	if b.cfg.Recompute {
		return stages.Recompute(block)
	}
	return block
}

// Stages returns the stages in order, copy after copy, for runner.Config.Stages.
func (m *Model) Stages() []stages.Stage[kernels.Buffer] { return slices.Clone(m.stages) }

// Parameters returns every parameter once, in an order that does not depend on the split:
// embedding, positions, blocks in ascending order, final norm, and the head's table if it is
// not tied.
func (m *Model) Parameters() []*Parameter { return slices.Clone(m.parameters) }

// Close releases every buffer of the model. The stages must not be called again.
// A second Close does nothing.
func (m *Model) Close() error {
	err := errors.Join(m.scaling.close(), release(m.buffers))
	m.buffers, m.parameters, m.stages, m.scaling = nil, nil, nil, nil
	if err != nil {
		return fmt.Errorf("transformer: closing the model: %w", err)
	}
	return nil
}
