package schedule

import (
	"fmt"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/internal/formats/spelling"
)

// Schedule describes a rule: its usual name and its placement.
type Schedule struct {
	Name    string
	Summary string // one line
	Rule    Rule
	PerRank int // the usual number of the model's stages per rank
	// Place returns the rule's placement for a number of ranks and a number of stages of the model. The
	// error wraps ErrParams and names the supported numbers of stages.
	Place func(ranks, stages int) (Placement, error)
	// Split is set if the rule splits the backward into I and W.
	Split bool
	// AscendingBackward is set if the rule has one copy of the model and every stage runs its backwards in
	// ascending order of microbatches. The gradients of all plans with this property are bit-equal (L9).
	AscendingBackward bool
}

// Schedules returns all schedules, the simple ones first.
func Schedules() []Schedule {
	return []Schedule{
		{Name: "gpipe", Rule: GPipe, PerRank: 1, Place: place("gpipe", inBlocks), AscendingBackward: true,
			Summary: "all forwards, then all backwards"},
		{Name: "1f1b", Rule: OneFOneB, PerRank: 1, Place: place("1f1b", chained), AscendingBackward: true,
			Summary: "a forward and a backward in turn, P-r microbatches in flight on rank r"},
		{Name: "interleaved", Rule: Interleaved, PerRank: 2, Place: place("interleaved", looped), AscendingBackward: true,
			Summary: "1F1B on several stages a rank, in groups of microbatches; Megatron's"},
		{Name: "breadth-first", Rule: BreadthFirst, PerRank: 2, Place: place("breadth-first", anywhere), AscendingBackward: true,
			Summary: "all forwards stage by stage, then all backwards stage by stage"},
		{Name: "depth-first", Rule: DepthFirst, PerRank: 1, Place: place("depth-first", anywhere), AscendingBackward: true,
			Summary: "each microbatch as far as it will go before the next one"},
		{Name: "zb-h1", Rule: ZBH1, PerRank: 1, Place: place("zb-h1", chained), Split: true, AscendingBackward: true,
			Summary: "1F1B with split backwards, W in the gaps, as much in flight as 1F1B"},
		{Name: "zb-h2", Rule: ZBH2, PerRank: 1, Place: place("zb-h2", chained), Split: true, AscendingBackward: true,
			Summary: "as zb-h1 with up to 2P-1 microbatches in flight and no gaps in between"},
		{Name: "zb1p", Rule: ZB1P, PerRank: 2, Place: place("zb1p", looped), Split: true, AscendingBackward: true,
			Summary: "interleaved with split backwards, P microbatches in flight"},
		{Name: "zb-v", Rule: ZBV, PerRank: 2, Place: place("zb-v", onWave), Split: true, AscendingBackward: true,
			Summary: "split backwards on a V of two stages a rank, P microbatches in flight and no gaps in between"},
		{Name: "v-half", Rule: VHalf, PerRank: 2, Place: place("v-half", onWave), Split: true, AscendingBackward: true,
			Summary: "split backwards on a V with half of what zb-v has in flight"},
		{Name: "v-min", Rule: VMin, PerRank: 2, Place: place("v-min", onWave), Split: true, AscendingBackward: true,
			Summary: "split backwards on a V with a third of what zb-v has in flight"},
		{Name: "grouped-interleave", Rule: GroupedInterleave, PerRank: 2, Place: place("grouped-interleave", looped), Split: true, AscendingBackward: true,
			Summary: "interleaved with split backwards and P microbatches in flight, or fewer in smaller groups"},
		{Name: "dualpipe", Rule: DualPipe, PerRank: 1, Place: place("dualpipe", bothWays), Split: true,
			Summary: "two copies of the model run through the ranks in opposite directions, forwards over backwards"},
		{Name: "dualpipev", Rule: DualPipeV, PerRank: 2, Place: place("dualpipev", onWave), Split: true, AscendingBackward: true,
			Summary: "forwards over backwards on a V of two stages a rank"},
		{Name: "seq1f1b", Rule: Seq1F1B, PerRank: 1, Place: place("seq1f1b", chained),
			Summary: "1F1B on slices of sequences"},
	}
}

// inPyTorch maps the names of schedules in PyTorch 2.15 (get_schedule_class), as plainName returns them, to the names
// of the same schedules in this package if these are different.
var inPyTorch = map[string]string{"interleaved1f1b": "interleaved", "loopedbfs": "breadth-first", "interleavedzerobubble": "zb1p", "zbvzerobubble": "zb-v"}

// plainName returns a name in lower case, without hyphens, underscores and the prefix of PyTorch's classes, Schedule.
func plainName(name string) string {
	return strings.TrimPrefix(strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)), "schedule")
}

// Find returns the schedule with the given name: its own or that of PyTorch, such as ZBVZeroBubble or
// Schedule1F1B, in any case and with or without hyphens. The rule of LoopedBFS is BreadthFirstDescending, as in
// PyTorch. The error for an unknown name wraps ErrParams, lists the names, and suggests a similar one, if there is one.
func Find(name string) (Schedule, error) {
	plain := plainName(name)
	for _, s := range Schedules() {
		if plain == plainName(s.Name) || s.Name == inPyTorch[plain] {
			if plain == "loopedbfs" {
				s.Rule, s.AscendingBackward = BreadthFirstDescending, false
			}
			return s, nil
		}
	}
	return Schedule{}, diagnostic.Errorf(ErrParams, "there is no schedule %.*q; %s", spelling.MaxLength, name, spelling.Hint(name, Names()))
}

// Names returns the names of all schedules.
func Names() (names []string) {
	for _, s := range Schedules() {
		names = append(names, s.Name)
	}
	return names
}

// placing returns a placement, or the supported numbers of stages in words if the number is not supported.
type placing func(ranks, stages int) (p Placement, works string)

// place returns the Place function of the schedule with the given name, which calls placing.
func place(name string, placing placing) func(ranks, stages int) (Placement, error) {
	return func(ranks, stages int) (Placement, error) {
		if ranks < 1 || ranks > MaxStages || stages < 1 || stages > MaxStages {
			return Placement{}, diagnostic.Errorf(ErrParams, "%d stages on %d ranks: there must be 1 to %d of each", stages, ranks, MaxStages)
		}
		p, works := placing(ranks, stages)
		if works != "" {
			return Placement{}, diagnostic.Errorf(ErrParams, "%s does not run %d stages on %d ranks: use %s", name, stages, ranks, works)
		}
		return p, nil
	}
}

// anywhere loops any number of stages over the ranks.
func anywhere(ranks, stages int) (Placement, string) { return Looped(ranks, stages), "" }

// inBlocks divides the stages into blocks of consecutive stages, one per rank. If there are fewer stages
// than ranks, the last ranks have none.
func inBlocks(ranks, stages int) (Placement, string) {
	p := Looped(ranks, stages)
	for s := range p.Rank {
		p.Rank[s] = s * min(ranks, stages) / stages
	}
	return p, ""
}

// chained is like inBlocks, but requires at least one stage per rank.
func chained(ranks, stages int) (Placement, string) {
	if stages < ranks {
		return Placement{}, fmt.Sprintf("%d stages, one a rank, or more", ranks)
	}
	return inBlocks(ranks, stages)
}

// looped loops the stages over the ranks, and requires the same number of stages on every rank.
func looped(ranks, stages int) (Placement, string) {
	if stages%ranks != 0 {
		return Placement{}, fmt.Sprintf("%d stages, %d, or another multiple of %d", ranks, 2*ranks, ranks)
	}
	return Looped(ranks, stages), ""
}

// onWave places two stages on every rank, as a V.
func onWave(ranks, stages int) (Placement, string) {
	if stages != 2*ranks {
		return Placement{}, fmt.Sprintf("%d stages, two a rank", 2*ranks)
	}
	return Wave(ranks, stages), ""
}

// bothWays places two copies of a model, with as many stages as ranks, in opposite directions.
func bothWays(ranks, stages int) (Placement, string) {
	if stages != ranks {
		return Placement{}, fmt.Sprintf("%d stages, one a rank; the second copy has the same", ranks)
	}
	return Bidirectional(ranks), ""
}
