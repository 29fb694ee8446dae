package schedule

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Interleaved is Megatron-LM's interleaved 1F1B. Each rank has V stages, looped: stage s is on rank
// s mod P. Microbatches run in groups of Group, by default P. A rank runs a group's forwards at its
// first stage, then at its second stage, and so on, and the backwards from its last stage to its
// first. Rank r runs 2(P-1-r) + (V-1)·Group forwards, then alternates between a forward and a
// backward, and finally runs the remaining backwards.
//
// With many microbatches, rank r has at most 2(P-1-r) + (V-1)·Group + 1 of them in flight, summed
// over its stages. If a rank spends times F and B on a microbatch, the makespan has a bubble of
// (P-1)(F+B)/V.
//
// A group has at least P microbatches. Megatron rejects numbers of microbatches that leave fewer
// than P for the last group. Interleaved accepts them: it uses the order of a full last group and
// omits the missing microbatches. Errors wrap ErrParams.
func Interleaved(p Params) (*Plan, error) {
	t, err := newTable(p, "interleaved")
	if err != nil {
		return nil, err
	}
	programs := make([][]Segment, t.ranks)
	for rank := range programs {
		warmup := min(2*(t.ranks-1-rank)+(t.depth-1)*t.group, t.forwards)
		programs[rank] = t.program(rank, delayed{F, 0}, delayed{B, warmup})
	}
	return p.plan(t.name, programs...), nil
}

// table numbers the forwards of a rank that has several stages, looped: group by group, within each
// group stage by stage, and within each stage microbatch by microbatch. Backwards are numbered in the
// same way, but with the stages in reverse order.
type table struct {
	name         string // the plan's name
	ranks, depth int    // depth is the number of stages per rank
	group        int
	microbatches int
	padded       int // the number of microbatches, including those that fill up the last group
	forwards     int // the number of forwards on a rank, including those of the microbatches that fill up the last group
	whole        int // the number of forwards on a rank in complete groups
}

// newTable returns the table for a rule with groups. It returns an error if the parameters are invalid.
func newTable(p Params, rule string) (table, error) {
	ranks := p.Placement.Ranks
	name, group, err := p.groups(rule, ranks)
	if err != nil {
		return table{}, err
	}
	t := table{name: name, ranks: ranks, depth: p.Placement.Stages() / ranks, group: group, microbatches: p.Microbatches}
	t.padded = t.microbatches
	if rest := t.microbatches % t.group; rest > 0 && rest < ranks {
		t.padded += t.group - rest
	}
	t.forwards = t.padded * t.depth
	t.whole = t.microbatches / t.group * t.group * t.depth
	return t, nil
}

// groups validates the parameters for a rule that runs groups of at least the given number of microbatches through the
// same number of stages on each rank. It returns the plan's name and the size of a group.
func (p Params) groups(rule string, least int) (name string, group int, err error) {
	if err := p.check(rule, takesGroup); err != nil {
		return "", 0, err
	}
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	if stages%ranks != 0 || !slices.Equal(p.Placement.Rank, Looped(ranks, stages).Rank) {
		return "", 0, diagnostic.Errorf(ErrParams, "%s needs the same number of stages on each rank, with stage s on rank s mod %d: place %d, %d or another multiple of %d stages",
			rule, ranks, ranks, 2*ranks, ranks)
	}
	if p.Group != 0 && p.Group < least {
		return "", 0, diagnostic.Errorf(ErrParams, "%s in groups of %d on %d ranks: a group must fill the pipeline: use %d or more, or 0 for %d",
			rule, p.Group, ranks, ranks, ranks)
	}
	name, group = rule, ranks
	if p.Group > 0 && p.Group != ranks {
		name, group = fmt.Sprintf("%s group=%d", rule, p.Group), min(p.Group, max(p.Microbatches, ranks)) // a larger group contains all microbatches
	}
	if int64(group)*int64(stages) > maxBody/4 {
		return "", 0, diagnostic.Errorf(ErrParams, "groups of %d microbatches over %d stages take more than %d actions to write out: use smaller groups",
			group, stages, maxBody)
	}
	return name, group, nil
}

// delayed is a kind of action, and the number of slots by which each action of the kind follows the
// forward with the same number.
type delayed struct {
	kind  Kind
	slots int
}

// program returns the program of a rank, slot by slot. A slot has at most one action of each kind. The
// last of the given kinds must have the longest delay.
func (t *table) program(rank int, kinds ...delayed) []Segment {
	var w Builder
	slot := func(i int) {
		for _, d := range kinds {
			if k := i - d.slots; k >= 0 && k < t.forwards {
				t.write(&w, d.kind, rank, k)
			}
		}
	}
	full := kinds[len(kinds)-1].slots // the first slot that has all kinds
	rest := max(full, t.whole)        // the first slot after the forwards of complete groups
	for i := range full {
		slot(i)
	}
	w.loop(full, rest, t.depth*t.group, t.group, slot)
	for i := rest; i < t.forwards+full; i++ {
		slot(i)
	}
	return w.Program()
}

// write writes the action with number k of a kind on a rank, unless its microbatch only fills up the last group.
func (t *table) write(w *Builder, kind Kind, rank, k int) {
	first := k / (t.group * t.depth) * t.group
	size := min(t.group, t.padded-first)
	k -= first * t.depth
	mb, depth := first+k%size, k/size
	if mb >= t.microbatches {
		return
	}
	if kind != F {
		depth = t.depth - 1 - depth
	}
	w.Append(NewAction(kind, depth*t.ranks+rank, mb))
}
