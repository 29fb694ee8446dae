package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// T is the handle of the suite.
type T = kernels.Buffer

// tiny is a model that runs a step of thousands of microbatches in a moment.
var tiny = transformer.Config{Vocabulary: 11, Width: 8, Layers: 2, Heads: 2, Context: 8, Seed: 5}

// setup is a model, with a schedule and ranks to run it on.
type setup struct {
	schedule  string
	ranks     int
	stages    int // of the model
	frozen    int // number of first stages that train nothing
	capacity  int // of a link
	lookAhead int
	model     transformer.Config
	unsplit   bool // stages do not split their backward, although the schedule does
}

func (s setup) String() string {
	name := fmt.Sprintf("%s P=%d S=%d", s.schedule, s.ranks, s.stages)
	if s.frozen > 0 {
		name += fmt.Sprintf(" frozen=%d", s.frozen)
	}
	if s.model.Recompute {
		name += " recompute"
	}
	if s.model.Untied {
		name += " untied"
	}
	if s.unsplit {
		name += " unsplit"
	}
	return name
}

// placement returns the schedule and the placement of the stages, or an error if the schedule does
// not support their number.
func (s setup) placement() (schedule.Schedule, schedule.Placement, error) {
	found, err := schedule.Find(s.schedule)
	if err != nil {
		return found, schedule.Placement{}, err
	}
	p, err := found.Place(s.ranks, s.stages)
	return found, p, err
}

// rig is a setup with its devices: hosts, or Null devices of them.
type rig struct {
	setup
	hosts []*kernels.Host // by rank
	devs  []kernels.Compute
	nulls []*kernels.Null // nil if the devices are hosts
	model *transformer.Model
	cfg   runner.Config[T]
}

// newRig makes the devices, the model on them and the configuration of the ranks.
func newRig(t testing.TB, s setup, null bool) *rig {
	t.Helper()
	if !null {
		return newRigOn(t, s, func(host *kernels.Host) kernels.Compute { return host })
	}
	var nulls []*kernels.Null
	r := newRigOn(t, s, func(host *kernels.Host) kernels.Compute {
		dev := kernels.NewNull(host)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		nulls = append(nulls, dev)
		return dev
	})
	r.nulls = nulls
	return r
}

// newRigOn is newRig with a device of the caller over each host.
func newRigOn(t testing.TB, s setup, over func(*kernels.Host) kernels.Compute) *rig {
	t.Helper()
	r := &rig{setup: s}
	for range s.ranks {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 256 << 20})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, host.Close()) })
		r.hosts = append(r.hosts, host)
		r.devs = append(r.devs, over(host))
	}
	r.build(t)
	return r
}

// build makes the model on the devices, and the configuration of the ranks.
func (r *rig) build(t testing.TB) {
	t.Helper()
	s := r.setup
	found, placement, err := s.placement()
	require.NoError(t, err)
	places := make([][]kernels.Compute, max(placement.Copies, 1))
	for stage, rank := range placement.Rank {
		copied := stage / placement.Depth()
		places[copied] = append(places[copied], r.devs[rank])
	}
	r.model, err = transformer.NewOn(s.model, places...)
	require.NoError(t, err)
	list := r.model.Stages()
	for i, stage := range list {
		if i%placement.Depth() < s.frozen {
			list[i] = stages.Freeze(stage)
		} else if s.unsplit {
			list[i] = &plain{stage}
		}
	}
	r.cfg = runner.Config[T]{
		Stages: list, Seed: 7,
		Losses:   []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Plan:     runner.Plan{Placement: placement, Rule: found.Rule, LookAhead: s.lookAhead},
		Topology: runner.Topology[T]{Capacity: s.capacity, Stall: -1},
	}
	for _, dev := range r.devs {
		r.cfg.Spaces = append(r.cfg.Spaces, dev)
	}
}

// plain is a stage that does not split its backward.
type plain struct{ stages.Stage[T] }

func (p *plain) Unwrap() stages.Stage[T] { return p.Stage }

// source provides entries of tokens, with a given length for each microbatch.
type source struct {
	dev    kernels.Device
	length func(microbatch int) int
	values []int32
	ones   []float32
}

func (s *source) Next(_ context.Context, entry batchctx.Entry[T]) error {
	n := s.length(entry.Index())
	s.values, s.ones = s.values[:0], s.ones[:0]
	for i := range n {
		s.values = append(s.values, int32((entry.Index()*7+i*3)%11))
		s.ones = append(s.ones, 1)
	}
	transformer.Put(s.dev, entry, s.values, s.values, s.ones)
	return nil
}

// sources provides every rank with entries of these lengths.
func (r *rig) sources(length func(microbatch int) int) runner.Source[T] {
	var list []runner.Source[T]
	for _, dev := range r.devs {
		list = append(list, &source{dev: dev, length: length})
	}
	return runner.PerRank(list...)
}

// fixed returns a function that returns the length n for every microbatch.
func fixed(n int) func(int) int { return func(int) int { return n } }

// shape returns the shape class of one length.
func (r *rig) shape(n int) record.Shape[T] {
	return record.Shape[T]{Name: fmt.Sprintf("%d tokens", n), Source: r.sources(fixed(n))}
}

// profileOf returns the profile of a setup.
func profileOf(t testing.TB, s setup, lengths ...int) *layout.Profile {
	t.Helper()
	r := newRig(t, s, true)
	var shapes []record.Shape[T]
	for _, n := range lengths {
		shapes = append(shapes, r.shape(n))
	}
	profile, err := record.Stages(t.Context(), r.cfg, shapes...)
	require.NoError(t, err)
	for _, dev := range r.nulls {
		require.Equal(t, resident(dev), dev.Live(), "a dry run releases everything")
	}
	return profile
}

// resident returns the live bytes of the model.
func resident(dev kernels.Device) int64 {
	var stats memory.Stats
	dev.Stats(&stats)
	return stats.Classes[memory.Resident]
}

// runStep runs a step that must succeed.
func runStep(t testing.TB, r *runner.Runner[T], microbatches int, from runner.Source[T]) *runner.Result {
	t.Helper()
	result, err := r.Step(t.Context(), microbatches, from)
	require.NoError(t, err)
	return result
}
