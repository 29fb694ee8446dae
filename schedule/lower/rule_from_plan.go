package lower

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// RuleFromPlan returns a rule that generates the given plan, such as a plan from a file or a search. The
// rule discards the plan's drops but keeps its transfers, unless the plan is for PyTorch or sends
// without ever waiting; [Prepare] adds transfers to such a plan.
//
// The rule accepts the plan's own number of microbatches, and any other number for which repeating
// the plan's loops more or fewer times results in a valid plan. In forward-only mode it returns the
// forwards of DepthFirst on the plan's placement, or of DualPipe for two copies of a model, and
// gathers as many stages at the same time as the plan does. The rule rejects Group, Cap and Slices. Its errors wrap
// ErrParams.
func RuleFromPlan(plan *schedule.Plan) schedule.Rule {
	return func(p schedule.Params) (*schedule.Plan, error) {
		switch {
		case p.Group > 1 || p.Cap > 0 || p.Slices > 1:
			return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q is fixed: leave out Group, Cap and Slices", plan.Name)
		case p.Mode == schedule.ForwardOnly:
			return forwards(plan, p.Microbatches)
		}
		bare := withoutDrops(plan)
		has := bare.Kinds()
		sends, waits := has[schedule.SendF] || has[schedule.SendB], has[schedule.WaitF] || has[schedule.WaitB]
		if bare.Runtime != schedule.Weir || sends && !waits {
			bare = move(Computations(bare), schedule.Weir)
		}
		if bare.Microbatches == p.Microbatches {
			return bare, nil
		}
		resized := resize(bare, p.Microbatches)
		if resized == nil || check.Plan(resized) != nil {
			return nil, diagnostic.Errorf(schedule.ErrParams, "plan %[1]q is for %[2]d microbatches, and its loops cannot be repeated to fit %[3]d: step with %[2]d, or make a plan for %[3]d",
				plan.Name, plan.Microbatches, p.Microbatches)
		}
		return resized, nil
	}
}

// forwards returns a forward-only plan on the plan's placement.
func forwards(plan *schedule.Plan, microbatches int) (*schedule.Plan, error) {
	rule := schedule.DepthFirst
	if plan.Placement.Copies > 1 {
		rule = schedule.DualPipe
	}
	made, err := rule(schedule.Params{Placement: plan.Placement, Microbatches: microbatches, Mode: schedule.ForwardOnly})
	if err != nil {
		return nil, err
	}
	if plan.Placement.Copies < 2 {
		made.Slices = plan.Slices
	}
	if most := maxGathered(plan); most > 0 {
		return Shard(made, most)
	}
	return made, nil
}

// maxGathered returns the largest number of stages that any rank keeps gathered at the same time.
func maxGathered(plan *schedule.Plan) (most int) {
	for _, program := range plan.Programs {
		now := 0
		for a := range schedule.StaticActions(program) {
			switch a.Kind() {
			case schedule.Unshard:
				now++
			case schedule.Reshard:
				now--
			}
			most = max(most, now)
		}
	}
	return most
}

// resize returns the plan for another number of microbatches, or nil if the plan's loops do not fit
// that number or the plan has several copies of the model. The result may be invalid.
func resize(plan *schedule.Plan, microbatches int) *schedule.Plan {
	if plan.Placement.Copies > 1 || microbatches < 1 {
		return nil // the numbers of the other copies' microbatches would change
	}
	added := microbatches - plan.Microbatches
	resized := *plan.Flat()
	resized.Microbatches = microbatches
	resized.Programs = slices.Clone(resized.Programs)
	for rank, program := range resized.Programs {
		if len(program) == 0 {
			continue
		}
		if resized.Programs[rank] = resizeProgram(program, added); resized.Programs[rank] == nil {
			return nil
		}
	}
	return &resized
}

// stream identifies the actions of one kind on one stage, which a loop runs for consecutive
// microbatches.
type stream struct {
	kind  schedule.Kind
	stage int
}

// resizeProgram returns the program with added more microbatches, or nil if its loops do not fit that
// number; added may be negative. For every stream, one loop takes the additional microbatches: the
// loop with the most streams, or among several such loops, the one with the most repeats. Microbatches
// after those of the loop are shifted by the same number.
func resizeProgram(program []schedule.Segment, added int) []schedule.Segment {
	streams := make([]map[stream]int, len(program)) // by segment: the highest microbatch of each stream
	var loops []int
	for i, s := range program {
		streams[i] = map[stream]int{}
		for _, a := range s.Body {
			if key := (stream{a.Kind(), a.Stage()}); !a.Kind().OfStage() {
				streams[i][key] = max(streams[i][key], a.Shift((s.Repeat-1)*s.Stride).Microbatch())
			}
		}
		if s.Repeat > 1 && s.Stride > 0 && added%s.Stride == 0 && s.Repeat+added/s.Stride >= 1 {
			loops = append(loops, i)
		}
	}
	slices.SortStableFunc(loops, func(i, k int) int {
		return cmp.Or(len(streams[k])-len(streams[i]), program[k].Repeat-program[i].Repeat)
	})
	resized, highest := slices.Clone(program), map[stream]int{}
loops:
	for _, i := range loops {
		for key := range streams[i] {
			if _, ok := highest[key]; ok {
				continue loops
			}
		}
		maps.Copy(highest, streams[i])
		resized[i].Repeat += added / program[i].Stride
	}
	for i := range resized {
		body := slices.Clone(resized[i].Body)
		for k, a := range body {
			last, looped := highest[stream{a.Kind(), a.Stage()}]
			if !looped && !a.Kind().OfStage() {
				return nil
			}
			if a.Microbatch() > last && looped {
				body[k] = a.Shift(added)
			}
		}
		resized[i].Body = body
	}
	return resized
}
