package gomlx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
)

// Loss is a loss or a metric of GoMLX, like loss.LossFn. It returns a mean, or a number for each
// example.
type Loss = func(labels, predictions []*graph.Node) *graph.Node

// Optimizer is any optimizer of GoMLX that takes gradients: SGD, Adam, AdamW, RMSProp.
type Optimizer interface {
	optimizer.Interface
	train.OptimizeWithGradients
}

// Stage is a part of a model.
type Stage struct {
	Name string
	// Reads names the parts of the entry that the stage reads. In the inputs of Graph they follow
	// the outputs of the previous stage.
	Reads []string
	// Graph builds the stage. The scope is the root of the store, so the names of variables do
	// not depend on the cut. Stages that use the same variable share it.
	Graph func(scope *model.Scope, inputs []*graph.Node) []*graph.Node
	// Outputs is the number of tensors that Graph returns; 0 means 1.
	Outputs int
}

// Config is a model in stages, with its loss and its optimizer.
type Config struct {
	Backend *Backend     // nil means a new backend "go"
	Store   *model.Store // of the variables
	Stages  []Stage
	Entry   map[string]shapes.Shape // the largest shape of each part of an entry, by name
	// Labels names the parts of the entry that the losses get as labels. A boolean part after the
	// first is a mask: the number of its true elements is the weight of a microbatch.
	Labels  []string
	Loss    Loss // the objective, recorded as "loss"
	Metrics map[string]Loss
	Ranks   int // number of ranks of the pipeline, in all processes; 0 means 1
	// First is the first rank of this process, and Count is their number; 0 means all ranks from
	// First on. Every process makes the whole model, from a store with the same values, and trains
	// the variables of its ranks; other variables keep their values. See Model.Runner.
	First, Count int
	Schedule     string
	Optimizer    Optimizer // updates the variables; may be nil
	// Recompute selects nodes of the forward that the backward recomputes from their inputs, in
	// addition to nodes that only copy or fill. nil selects none.
	Recompute func(*graph.Node) bool
	// MaxShapes is the number of sets of input shapes for which a stage keeps programs; 0 means
	// 16.
	MaxShapes int
}

// Model is a model of GoMLX that Weir trains. Its variables are in the store.
type Model struct {
	Config
	Devices  []*Device // by rank
	backend  *Backend
	losses   []named
	stages   []*stage
	grads    map[string]T       // by path of a trained variable: its accumulator in the first stage of this process that uses it
	owners   map[string]*Device // by path: the rank of that stage
	compiled atomic.Int64
	before   atomic.Int64 // live bytes in the book of GoMLX's own buffers when the step began
	update   *model.Exec
	reading  []*batches
	sums     []T // the accumulators of all stages
}

type named struct {
	name string
	fn   Loss
}

// New divides a model into its stages, and initializes variables that have no value.
func New(cfg Config) (*Model, error) {
	m := &Model{Config: cfg, backend: cfg.Backend, grads: map[string]T{}, owners: map[string]*Device{}}
	m.MaxShapes, m.Ranks = max(m.MaxShapes, 1), max(m.Ranks, 1)
	if m.Count == 0 {
		m.Count = m.Ranks - m.First
	}
	if m.First < 0 || m.Count < 1 || m.First+m.Count > m.Ranks {
		return nil, fmt.Errorf("gomlx: Config.First is %d and Count is %d, want at least one of %d ranks", cfg.First, cfg.Count, m.Ranks)
	}
	if cfg.MaxShapes == 0 {
		m.MaxShapes = 16
	}
	if m.Schedule == "" {
		m.Schedule = "depth-first"
	}
	if m.Store == nil || len(m.Stages) == 0 || m.Loss == nil {
		return nil, errors.New("gomlx: Config needs Store, Stages and Loss")
	}
	named, err := schedule.Find(m.Schedule)
	if err != nil {
		return nil, fmt.Errorf("gomlx: Schedule: %w", err)
	}
	placement, err := named.Place(m.Ranks, len(m.Stages))
	if err == nil && placement.Copies > 1 {
		err = errors.New("it runs two copies of the model, which has one set of variables")
	}
	if err != nil {
		return nil, fmt.Errorf("gomlx: schedule %s: %w", m.Schedule, err)
	}
	if m.backend == nil {
		if m.backend, err = NewBackend(""); err != nil {
			return nil, err
		}
	}
	m.Devices = []*Device{m.backend.model}
	if m.Ranks > 1 {
		m.Devices = nil
		for range m.Ranks {
			m.Devices = append(m.Devices, m.backend.device())
		}
	}
	m.addLosses()
	var before []shapes.Shape
	for i, declared := range m.Stages {
		if slices.ContainsFunc(m.Stages[:i], func(s Stage) bool { return s.Name == declared.Name }) {
			return nil, fmt.Errorf("gomlx: two stages are named %q: give each its own name, which is a key of its random draws", declared.Name)
		}
		rank := placement.Rank[i]
		s := &stage{def: declared, model: m, device: m.Devices[rank], local: rank >= m.First && rank < m.First+m.Count, last: i == len(m.Stages)-1}
		if before, err = s.declare(before); err != nil {
			return nil, err
		}
		m.stages = append(m.stages, s)
	}
	if err := m.Store.InitializeVariables(m.backend, nil); err != nil {
		return nil, fmt.Errorf("gomlx: %w", err)
	}
	for _, d := range m.Devices {
		d.begin = func() {
			_ = m.place(d) // a stage that lacks a variable reports it later
			m.before.Store(m.backend.model.Live())
		}
		d.begin()
	}
	return m, nil
}

func (m *Model) recompute(n *graph.Node) bool { return m.Recompute != nil && m.Recompute(n) }

func (m *Model) addLosses() {
	m.losses = []named{{"loss", m.Loss}}
	for name, fn := range m.Metrics {
		m.losses = append(m.losses, named{name, fn})
	}
	slices.SortFunc(m.losses[1:], func(a, b named) int { return strings.Compare(a.name, b.name) })
}

// declare determines the declaration of a stage for the shapes of Config.Entry, and returns the
// shapes of its outputs.
func (s *stage) declare(before []shapes.Shape) ([]shapes.Shape, error) {
	m := s.model
	s.Name = s.def.Name
	for i := range before {
		s.inputs = append(s.inputs, fmt.Sprint("x", i))
	}
	s.Inputs(s.inputs...)
	in := slices.Clone(before)
	reads := slices.Clone(s.def.Reads)
	if s.last {
		reads = append(reads, m.Labels...)
	}
	for _, part := range reads {
		shape, ok := m.Entry[part]
		if !ok {
			return nil, fmt.Errorf("gomlx: stage %q reads %q: Config.Entry has no shape for it", s.def.Name, part)
		}
		in = append(in, shape)
		s.parts = append(s.parts, s.Part(part))
	}
	if s.last {
		for _, l := range m.losses {
			s.losses = append(s.losses, s.Loss(l.name))
		}
	} else {
		for i := range max(s.def.Outputs, 1) {
			s.outputs = append(s.outputs, fmt.Sprint("x", i))
		}
		s.Outputs(s.outputs...)
	}
	v, err := s.newVariant(in)
	if err != nil {
		return nil, err
	}
	s.known = []*variant{v}
	s.ticket = [2]batchctx.Slot{s.Slot("ticket of the backward"), s.Slot("ticket of W")}
	for _, n := range v.kept {
		s.kept = append(s.kept, s.Slot(n.String()))
	}
	for _, n := range v.carries {
		s.carries = append(s.carries, s.Slot("carried "+n.String()))
	}
	for _, variable := range v.joint.variables {
		path := variable.Path()
		if m.owners[path] == nil && s.local {
			m.owners[path] = s.device
		}
		if !variable.Trainable {
			continue
		}
		var g T // none, on a rank of another process
		if s.local {
			if g, err = s.device.Put(memory.Resident, make([]float32, variable.Shape().Size()), variable.Shape()); err != nil {
				return nil, err
			}
			m.sums = append(m.sums, g)
		}
		_, tied := m.grads[path]
		if m.grads[path] == nil {
			m.grads[path] = g
		}
		s.params = append(s.params, s.Use(batchctx.Use[T]{Name: path, Grad: g, Tied: tied}))
	}
	s.Frozen = len(s.params) == 0
	var after []shapes.Shape
	for _, n := range v.joint.outputs {
		after = append(after, n.Shape())
	}
	return after, nil
}

// place moves the variables of a rank to the backend and into the rank's book: variables for which
// the optimizer has created new buffers, that a checkpoint has loaded, or that the host has
// changed.
func (m *Model) place(d *Device) (err error) {
	for path, owner := range m.owners {
		if owner == d {
			b, failed := m.value(path)
			if failed == nil {
				d.adopt(b)
			}
			err = errors.Join(err, failed)
		}
	}
	return err
}

// value returns the buffer of a variable.
func (m *Model) value(path string) (*Buffer, error) {
	v := m.Store.GetVariable(path)
	if v == nil {
		return nil, fmt.Errorf("gomlx: the store has no variable %s", path)
	}
	t, err := v.Value()
	if err != nil {
		return nil, fmt.Errorf("gomlx: %w", err)
	}
	b, err := t.Buffer(m.backend, 0)
	if err != nil {
		return nil, fmt.Errorf("gomlx: variable %s: %w", path, err)
	}
	return b.(*Buffer), nil
}

// unchanged returns an error if variables other than those found by New are trained: accumulators
// and optimizer depend on them.
func (m *Model) unchanged() error {
	for v := range m.Store.IterVariables() {
		if path := v.Path(); m.owners[path] != nil && v.Trainable != (m.grads[path] != nil) {
			return fmt.Errorf("%w: variable %s is trained: %v, but in New it was %v: make a new Model", ErrRefused, path, v.Trainable, !v.Trainable)
		}
	}
	return nil
}

// Runner returns the parts of a runner's configuration that the model determines. The caller
// adds the rest, such as hooks, memory and, if other processes have ranks, Topology.Transport. Each
// of the Devices is the codec of its rank (transport.Codec).
func (m *Model) Runner() runner.Config[T] {
	cfg := runner.Config[T]{Schedule: m.Schedule, Topology: runner.Topology[T]{Ranks: m.Ranks, First: m.First}}
	for _, s := range m.stages {
		cfg.Stages = append(cfg.Stages, stages.Stage[T](s))
	}
	cfg.Spaces = runner.Spaces[T](m.Devices[m.First:][:m.Count]...)
	for i, l := range m.losses {
		cfg.Losses = append(cfg.Losses, loss.Def{Name: l.name, Objective: i == 0, Metric: i > 0})
	}
	if m.Ranks > 1 && m.Count == m.Ranks {
		cfg.Topology.Capacity, cfg.Topology.Copy = 1, func(from, to int, b T) (T, error) {
			flat, err := b.host()
			if err != nil {
				return nil, err
			}
			return m.Devices[to].Put(memory.Transfer, flat, b.shape)
		}
	}
	return cfg
}

// Profile records the allocations and the saved state of the stages for a microbatch with the
// shapes of Config.Entry, or with each of the given classes of shapes. runner.Memory needs the
// profile to offload saved state. Profile runs every stage a few times, with parts filled with
// zeros, and changes no variables. All ranks must be in this process; otherwise make a second model
// that has all of them.
func (m *Model) Profile(ctx context.Context, classes ...map[string]shapes.Shape) (*layout.Profile, error) {
	if m.Count < m.Ranks {
		return nil, fmt.Errorf("gomlx: this process has %d of %d ranks: record a model without Config.First and Count, with a backend and a store of its own", m.Count, m.Ranks)
	}
	if classes == nil {
		classes = append(classes, m.Entry)
	}
	var recorded []record.Shape[T]
	for i, parts := range classes {
		recorded = append(recorded, record.Shape[T]{Name: fmt.Sprint(i), Source: runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
			for name, shape := range parts {
				if e.Wants(name) {
					e.Put(name, e.Must(m.Devices[e.Rank()].Put(memory.Entry, dtypes.MakeAnySlice(shape.DType, shape.Size()), shape)))
				}
			}
			return nil
		})})
	}
	return record.Stages(ctx, m.Runner(), recorded...)
}

// Update runs the optimizer with the gradients of a step, multiplied by factor: step.Update(model.Update).
func (m *Model) Update(factor float64) error {
	if m.Optimizer == nil {
		return errors.New("gomlx: Config.Optimizer is nil: set it, or update the variables in the store")
	}
	if kept := m.backend.model.Live() - m.before.Load(); m.Ranks > 1 && kept > 0 {
		return fmt.Errorf("%w: %d bytes more than when the step began: finalize the results that a stage or a source has executed", ErrKept, kept)
	}
	if err := m.unchanged(); err != nil {
		return err
	}
	var paths []string
	args := []any{float32(factor)}
	for v := range m.Store.IterVariables() { // in the order of the optimizer
		if g := m.grads[v.Path()]; g != nil {
			if g.raw == nil { // GoMLX would lose the variables, which it donates
				return fmt.Errorf("gomlx: the model is closed: %w", memory.ErrStale)
			}
			t, err := tensors.FromBuffer(compute.Buffer(g))
			if err != nil {
				return err
			}
			paths, args = append(paths, v.Path()), append(args, t)
		}
	}
	if paths == nil { // this process trains nothing
		return nil
	}
	if m.update == nil {
		exec, err := model.NewExec(m.backend, m.Store, func(scope *model.Scope, in []*graph.Node) *graph.Node {
			var grads []*graph.Node
			for i, n := range in[1:] {
				scope.Store().GetVariable(paths[i]).NodeValue(n)
				grads = append(grads, graph.Mul(n, in[0]))
			}
			m.Optimizer.UpdateGraphWithGradients(scope, grads, dtypes.Float32)
			return in[0]
		})
		if err != nil {
			return fmt.Errorf("gomlx: %w", err)
		}
		m.update = exec
	}
	out, err := m.update.Call(args...)
	if err != nil {
		return fmt.Errorf("gomlx: %w", err)
	}
	for _, t := range out {
		err = errors.Join(err, t.FinalizeAll())
	}
	for _, d := range m.Devices {
		err = errors.Join(err, m.place(d))
	}
	return err
}
