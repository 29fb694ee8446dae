package runner

import (
	"errors"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
)

// NewDry is New for a dry run, with the stages and spaces of one replica. The runner plans steps of all
// replicas of cfg (Prepare) but runs none.
func NewDry[T any](cfg Config[T]) (*Runner[T], error) {
	replicas := cfg.Replicas
	cfg.Replicas, cfg.dry = Replicas{Shard: replicas.shard()}, &replicas
	cfg.Topology.Sums, cfg.Audit = false, 0 // it computes and sends nothing, and its spaces may have no bytes
	return New(cfg)
}

var errDry = errors.New("runner: NewDry has made the runner, which runs no steps: make it with New")

// Dry returns the calls of the ranks. It is for package record, which makes and records them.
func (r *Runner[T]) Dry() *calls.Dry[T] {
	dry := &calls.Dry[T]{
		StageInfo: r.planner.passes.StageInfo, Copy: r.cfg.Topology.Copy,
		SetSource: func(source calls.Source[T]) error { return r.share(source, &batch{m: 1, replicas: 1}) },
	}
	for _, w := range r.workers {
		dry.Ranks = append(dry.Ranks, &w.calls)
	}
	if r.cfg.Replicas.Shard >= 2 {
		dry.Whole = func(s int, place effects.BufferKind) error {
			return r.workers[r.cfg.Plan.Placement.Rank[s]].params.makeWhole(place, s)
		}
	}
	return dry
}
