package oracle_test

import (
	"context"
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	. "github.com/weir-ml/weir/tests/oracle"
)

// setup is a model with a schedule.
type setup struct {
	Model
	schedule  schedule.Schedule
	slices    int
	unsplit   bool // no stage splits its backward
	quantizes bool // stages compute on copies of their weights
	atStart   bool // the copies are made at the start of the step
	sharded   bool // the plan has UNSHARD and RESHARD, which do nothing without replicas
	uneven    bool // microbatches have two shapes, which the source announces
}

// rig is a setup on Null devices, which record allocations and releases.
type rig struct {
	setup
	devs    []*kernels.Null // by rank
	dry     int             // the shape that is recorded, or -1 in a step
	prime   int             // greater than the number of sizes
	cfg     runner.Config[T]
	sources runner.Source[T]

	// The record of a step, by rank.
	programs [][]schedule.Action
	cuts     [][]int // by action: the length of the device's record before it
	samples  [][]memory.Sample
}

func newRig(t *testing.T, s setup) *rig {
	r := &rig{setup: s}
	r.Bytes, r.PartBytes, r.Params = r.bytes, r.partBytes, r.params
	for r.prime = 2 * (NumParts + NumSizes*s.Placement.Stages()); !big.NewInt(int64(r.prime)).ProbablyPrime(0); {
		r.prime++
	}
	r.cfg = runner.Config[T]{
		Losses:   []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
		Hooks:    runner.Hooks{Action: r.action, Microbatch: func(s *memory.Sample) { r.samples[s.Rank] = append(r.samples[s.Rank], *s) }},
		Plan:     runner.Plan{Placement: s.Placement, Rule: r.rule, Slices: s.slices, LookAhead: s.LookAhead},
		Memory:   runner.Memory{Search: planning.Search{Nodes: 1}}, // any layout is good enough
		Topology: runner.Topology[T]{Capacity: 1, Stall: -1},
	}
	if s.atStart {
		r.cfg.Plan.Quantizing = lower.AtStart
	}
	var sources []runner.Source[T]
	for range s.Placement.Ranks {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 30})
		require.NoError(t, err)
		dev := kernels.NewNull(host)
		t.Cleanup(func() { require.NoError(t, dev.Close()); require.NoError(t, host.Close()) })
		r.devs = append(r.devs, dev)
		sources = append(sources, &announced{source{r, dev, -1}})
		r.cfg.Spaces = append(r.cfg.Spaces, dev)
	}
	r.sources = runner.PerRank(sources...)
	for i := range s.Placement.Stages() {
		r.cfg.Stages = append(r.cfg.Stages, r.stage(t, i))
	}
	return r
}

// rule returns the rule of the schedule, with UNSHARD and RESHARD if weights are sharded.
func (r *rig) rule(p schedule.Params) (*schedule.Plan, error) {
	plan, err := r.schedule.Rule(p)
	if err == nil && r.sharded {
		plan, err = lower.Shard(plan, 2)
	}
	return plan, err
}

// stage returns a stage with its parameters, decorated according to the setup.
func (r *rig) stage(t *testing.T, i int) stages.Stage[T] {
	dev := r.devs[r.Placement.Rank[i]]
	made := &stage{dev: dev, number: i, first: r.Placement.First(i), last: r.Placement.Last(i), quantizes: r.quantizes, bytes: r.bytes}
	for _, param := range r.params(i) {
		grad, err := dev.Alloc(memory.Resident, kernels.Float32, int(param.Bytes/4))
		require.NoError(t, err)
		made.params = append(made.params, batchctx.Use[T]{Name: param.Name, Grad: grad, Tied: param.Name == "table"})
	}
	var s stages.Stage[T] = made
	if r.unsplit {
		s = &whole{s}
	}
	if r.Recomputes[i] {
		s = stages.Recompute(s)
	}
	if r.Frozen[i] {
		s = stages.Freeze(s)
	}
	return s
}

// whole is a stage that does not split its backward.
type whole struct{ stages.Stage[T] }

func (w *whole) Unwrap() stages.Stage[T] { return w.Stage }

// params returns a weight of each stage, and a table that the first and the last one share.
// Copies of the model share all of them.
func (r *rig) params(stage int) []Param {
	depth := r.Placement.Depth()
	stage %= depth
	list := []Param{{fmt.Sprint("weight of ", stage), int64(4 * (100 + stage))}}
	if stage == 0 || stage == depth-1 {
		list = append(list, Param{"table", 4 * 99})
	}
	return list
}

// bytes returns the size of an allocation of a stage, and partBytes the size of a part.
func (r *rig) bytes(stage int, size Size, index int) int64 {
	switch size { // a gradient has the size of its tensor
	case XGrad:
		stage, size = stage-1, X
	case SkipGrad:
		stage, size = stage-stage%r.Placement.Depth(), Skip
	}
	return r.distinct(NumParts+NumSizes*stage+int(size), index)
}

func (r *rig) partBytes(part, index int) int64 { return r.distinct(part, index) }

// distinct returns a size for each number and shape. No two pairs of sizes have the same sum
// (Erdős and Turán), so that the books cannot confuse two buffers.
func (r *rig) distinct(n, index int) int64 {
	all := NumParts + NumSizes*r.Placement.Stages()
	n += 1 + all*r.shape(index)
	return int64(2*r.prime*n + n*n%r.prime)
}

// shape returns the shape class of the microbatch with the given index; a dry run has only one.
func (r *rig) shape(index int) int {
	switch {
	case index < 0 || !r.uneven:
		return 0
	case r.dry >= 0:
		return r.dry
	}
	return [...]int{0, 1, 1, 0, 1}[index%5]
}

// source provides entries. In a dry run they have the shape that is recorded.
type source struct {
	*rig
	dev      *kernels.Null
	dryShape int // the recorded shape in a dry run, otherwise -1
}

func (s *source) Next(_ context.Context, e batchctx.Entry[T]) error {
	if s.dryShape >= 0 {
		s.rig.dry = s.dryShape
	}
	for part, name := range parts {
		if !e.Wants(name) {
			continue
		}
		e.Put(name, e.Must(s.dev.Alloc(memory.Entry, kernels.Uint8, int(s.partBytes(part, e.Index())))))
	}
	return nil
}

// announced is a source that announces the shapes of a step in advance.
type announced struct{ source }

func (s *announced) Shape(index int) int { return s.shape(index) }

func (r *rig) action(rank int, a schedule.Action) {
	r.programs[rank] = append(r.programs[rank], a)
	r.cuts[rank] = append(r.cuts[rank], len(r.devs[rank].Record()))
}

// record runs the dry run.
func (r *rig) record(t *testing.T) *layout.Profile {
	var shapes []record.Shape[T]
	for shape := range 2 {
		var list []runner.Source[T]
		for _, dev := range r.devs {
			list = append(list, &source{r, dev, shape})
		}
		shapes = append(shapes, record.Shape[T]{Name: fmt.Sprint("shape ", shape), Source: runner.PerRank(list...)})
	}
	profile, err := record.Stages(t.Context(), r.cfg, shapes...)
	require.NoError(t, err)
	r.dry = -1
	return profile
}

func (r *rig) group(t *testing.T, profile *layout.Profile) *runner.Runner[T] {
	r.cfg.Memory.Profile = profile
	group, err := runner.New(r.cfg)
	require.NoError(t, err)
	return group
}
