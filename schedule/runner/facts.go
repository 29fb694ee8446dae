package runner

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
)

// newPlanner returns the planner for a completed configuration.
func newPlanner[T any](cfg *Config[T], parts []string) *planner {
	replicas := &cfg.Replicas
	if cfg.dry != nil {
		replicas = cfg.dry
	}
	p := &planner{
		plan: &cfg.Plan, memory: &cfg.Memory,
		params: schedule.Params{
			Placement: cfg.Plan.Placement, Group: cfg.Plan.Group, Cap: cfg.Plan.Cap, Slices: cfg.Plan.Slices, Frozen: make([]bool, cfg.depth()),
		},
		passes:   lower.Passes{StageInfo: make([]schedule.StageInfo, cfg.depth()), Parts: len(parts), Quantizing: cfg.Plan.Quantizing, Reduce: replicas.count() > 1, Level: replicas.shard()},
		replicas: replicas.count(),
	}
	if replicas.shard() == 3 {
		p.passes.Gathered = cmp.Or(replicas.Gathered, lower.MinGathered)
	}
	if share := cfg.Memory.Offload.Share; share > 0 {
		p.passes.OffloadSlots = cfg.Memory.Profile.OffloadSlots(&cfg.Plan.Placement, share)
	}
	for s, stage := range cfg.stagesOf(0) {
		spec := stage.Spec()
		_, splits := stage.(stages.SplitBackward[T])
		p.params.Frozen[s] = spec.Frozen
		p.passes.StageInfo[s] = factsOf(&spec, parts, splits)
	}
	return p
}

// factsOf returns the facts about a stage that the passes need.
func factsOf(spec *stages.Spec, parts []string, splits bool) schedule.StageInfo {
	facts := schedule.StageInfo{Frozen: spec.Frozen, Recomputes: spec.Recomputes, Split: splits, Quantizes: spec.Quantizes()}
	for _, read := range spec.Reads {
		bit := uint64(1) << slices.Index(parts, read.Part)
		if read.At == 0 || read.At&frames.AtForward != 0 {
			facts.Reads[schedule.F] |= bit
		}
		if read.At&frames.AtBackward != 0 {
			facts.Reads[schedule.B] |= bit
			facts.Reads[schedule.I] |= bit
		}
		if read.At&frames.AtWeight != 0 {
			facts.Reads[schedule.B] |= bit
			facts.Reads[schedule.W] |= bit
			if !splits { // its I runs the whole backward
				facts.Reads[schedule.I] |= bit
			}
		}
	}
	return facts
}
