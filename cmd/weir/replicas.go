package main

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// replicaFlags holds the flags of data-parallel replicas.
type replicaFlags struct {
	Replicas int `help:"Data-parallel replicas of the pipeline; by default 1. Each rank reduces the gradients of a stage over them after its last backward." aliases:"data" placeholder:"R"`
	Shard    int `help:"What replicas shard: 0 nothing, 1 the optimizer's state, 2 reduced gradients too, 3 weights too; by default 0." aliases:"zero" placeholder:"LEVEL"`
	Gathered int `help:"With --shard 3: the number of stages whose weights a rank holds whole at once; by default 2, the best number in choose, and none in fit." placeholder:"K"`
}

// usualGathered is the number of gathered stages by default. A joined pair needs two.
const usualGathered = 2

// validate returns an error for values out of range and for flags that contradict each other.
func (r *replicaFlags) validate() error {
	switch {
	case r.Replicas < 0 || r.Replicas > simulate.MaxReplicas:
		return usage("--replicas %d: give 1 to %d", r.Replicas, simulate.MaxReplicas)
	case r.Shard < 0 || r.Shard > schedule.ShardWeights:
		return usage("--shard %d: give a level from 0 to %d; --gathered is the number of stages", r.Shard, schedule.ShardWeights)
	case r.Shard > 0 && r.Replicas < 2:
		return usage("--shard %d: one replica shares nothing: give --replicas 2 or more", r.Shard)
	case r.Gathered < 0 || r.Gathered > 0 && r.Shard < schedule.ShardWeights:
		return usage("--gathered %d: give 1 or more, with --shard %d", r.Gathered, schedule.ShardWeights)
	}
	return nil
}

// passes sets the fields of p that the flags determine. It returns the error of validate.
func (r *replicaFlags) passes(p *lower.Passes) error {
	p.Reduce, p.Level = r.Replicas > 1, r.Shard
	if r.Shard == schedule.ShardWeights {
		p.Gathered = r.gathered()
	}
	return r.validate()
}

func (r *replicaFlags) gathered() int {
	if r.Gathered == 0 {
		return usualGathered
	}
	return r.Gathered
}

// replicate returns the plan with the actions for the flags.
func (r *replicaFlags) replicate(plan *schedule.Plan) (*schedule.Plan, error) {
	err := r.validate()
	if err == nil && r.Shard == schedule.ShardWeights {
		plan, err = lower.Shard(plan, r.gathered())
	}
	if err == nil && r.Replicas > 1 {
		plan, err = lower.Reduce(plan, r.Shard)
	}
	return plan, err
}

// apply returns the costs with the replicas of the flags, if the flags give more than one.
func (r *replicaFlags) apply(costs *simulate.Costs) *simulate.Costs {
	if r.Replicas < 2 {
		return costs
	}
	own := *costs
	own.Replicas, own.Shard = r.Replicas, r.Shard
	return &own
}

// shareUnevenly reports whether some replicas of a plan made by name may have one microbatch fewer than others,
// which requires that the plan for one microbatch fewer reduces gradients in the same order. It returns nil if
// there is no such plan.
func (m *planFlags) shareUnevenly(name string, plan *schedule.Plan) *bool {
	fewer, microbatches := *m, plan.Microbatches-1
	fewer.Microbatches = &microbatches
	less, err := fewer.make(name)
	if err == nil {
		less, err = m.replicate(less)
	}
	if err != nil {
		return nil
	}
	shared := check.Replicas(plan, less) == nil
	return &shared
}
