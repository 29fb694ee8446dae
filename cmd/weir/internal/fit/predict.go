package fit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// Request is the input of [Predict].
type Request struct {
	Model *Model // may be nil with Pieces, and with a Profile: then only the step is predicted
	// Pieces takes the place of Model and Profile: a model as PyTorch runs it.
	Pieces *Pieces
	Setup  Setup
	// Plan contains only computations, or it is a complete plan from a file.
	Plan *schedule.Plan
	// Cut is the number of layers of each stage of the model; nil spreads them evenly. The
	// first stage also has the embedding, and the last one the head.
	Cut []int
	// Profile is a measured profile; nil means that the formulas are used.
	Profile *layout.Profile
	// Resident returns the resident bytes of a rank with a measured profile; nil adds none.
	Resident func(place schedule.Placement, rank int) int64
	Capacity int // capacity of the links between ranks
	// Offload is the share of the bytes that each stage saves, from 0 to 1, that goes to far memory while no
	// action needs it (layout.Profile.OffloadSlots). A copy overlaps with Overlap computations; 0 means 1.
	Offload float64
	Overlap int
	// Reserved requests the bytes that PyTorch's allocator would reserve. Predict then replays the step twice.
	Reserved bool
}

// Prediction is the memory of every rank.
type Prediction struct {
	Ranks  []RankMemory
	Setup  Setup          // with its defaults
	Plan   *schedule.Plan // the lowered plan
	Cut    []int          // layers by stage of the model; nil if the request has neither Model nor Pieces
	Memory *layout.Memory
	// Gradients says when gradients appear, by stage of the model; nil if they are there from the beginning.
	Gradients []Gradients
	// Partial reports that the reserved bytes come from a replay of only a part of the step. The replay
	// leaves out repeats that equal those before them and allocate the same bytes.
	Partial bool
}

// RankMemory is the memory of a rank, in bytes.
type RankMemory struct {
	Stages []int `json:"stage_list"`
	Static
	Other       int64  `json:"resident,omitempty"` // resident bytes of a measured profile
	Activations int64  `json:"activations"`        // at the peak, including gradients of activations and workspaces
	Logits      int64  `json:"logits"`             // at the peak, all forms
	Transfers   int64  `json:"transfers"`          // at the peak, received and sent
	Far         int64  `json:"far,omitempty"`      // at the peak of far memory; not part of the total
	Allowance   int64  `json:"allowance"`
	Peak        string `json:"peak_at"` // the action of the peak, and its microbatch
	// Native and Expandable are the bytes that PyTorch's allocator would reserve with segments of
	// cudaMalloc and with expandable segments, both without the allowance.
	Native     int64 `json:"reserved_native,omitempty"`
	Expandable int64 `json:"reserved_expandable,omitempty"`
}

// Step returns the bytes of a step at its peak.
func (r *RankMemory) Step() int64 { return r.Activations + r.Logits + r.Transfers }

// Total returns the bytes at the peak, with the allowance.
func (r *RankMemory) Total() int64 { return r.Static.Total() + r.Other + r.Step() + r.Allowance }

// Predict returns the memory of every rank. Errors wrap ErrModel or ErrSetup, or come from
// lower.Prepare, layout.Make or the context.
func Predict(ctx context.Context, r Request) (*Prediction, error) {
	var err error
	if r.Pieces != nil {
		if r.Setup, err = r.Pieces.Adapt(r.Setup); err != nil {
			return nil, err
		}
	}
	r.Setup = r.Setup.withDefaults()
	out, profile := &Prediction{Setup: r.Setup}, r.Profile
	var parts [][]Module // by stage of the model
	switch {
	case r.Pieces != nil:
		if err = r.Setup.Validate(r.Pieces.shape(&r.Setup)); err == nil {
			out.Cut, err = cutOf(r.Pieces.Layers(), r.Cut, r.Plan.Placement.Depth(), 0)
		}
		if err == nil {
			if profile, err = r.Pieces.Profile(r.Setup, out.Cut); err == nil {
				out.Gradients = r.Pieces.Gradients(r.Setup, out.Cut, profile)
			}
		}
	case r.Model != nil:
		if err = errors.Join(r.Model.Validate(), r.Setup.Validate(r.Model)); err == nil {
			out.Cut, err = cutOf(r.Model.Layers, r.Cut, r.Plan.Placement.Depth(), r.Setup.FurtherStage)
		}
		if err == nil {
			parts = r.Model.stages(out.Cut, &r.Setup)
		}
	}
	if err == nil && profile == nil {
		profile, err = r.Model.profile(&r.Setup, parts)
	}
	if err != nil {
		return nil, err
	}
	facts := profile.StageInfo
	if depth := r.Plan.Placement.Depth(); len(facts) == depth {
		facts = slices.Repeat(facts, r.Plan.Placement.Stages()/depth)
	}
	passes := lower.Passes{StageInfo: facts, Parts: len(profile.Parts), Capacity: r.Capacity, Overlap: r.Overlap}
	if !(r.Offload >= 0 && r.Offload <= 1) {
		return nil, diagnostic.Errorf(ErrSetup, "the share of saved bytes to offload is %v: give 0 to 1", r.Offload)
	}
	if r.Offload > 0 {
		passes.OffloadSlots = profile.OffloadSlots(&r.Plan.Placement, r.Offload)
	}
	if out.Plan, err = lower.Prepare(r.Plan, passes); err != nil {
		return nil, err
	}
	if out.Memory, err = layout.Make(ctx, out.Plan, profile, layout.Config{Search: placement.Options{Nodes: 1}}); err != nil {
		return nil, err
	}
	programs := out.Plan.Flat().Programs
	for rank := range out.Memory.Ranks {
		one, place := r.rank(out, parts, rank)
		one.Peak = "step end"
		if a, ok := out.Memory.Ranks[rank].Action(programs[rank], place); ok {
			one.Peak = a.WithDrop(0).WithJoin(false).String()
		}
		out.Ranks = append(out.Ranks, one)
	}
	if r.Reserved {
		err = out.reserve(ctx)
	}
	return out, err
}

// profile returns the profile of stages with the given modules, from the formulas.
func (m *Model) profile(s *Setup, parts [][]Module) (*layout.Profile, error) {
	var stages [][]Layer
	for stage, parts := range parts {
		recompute := s.Recompute
		if recompute.Stages != nil && !slices.Contains(recompute.Stages, stage) {
			recompute = Recompute{}
		}
		var layers []Layer
		for _, p := range parts {
			layers = append(layers, s.layer(m, p, recompute))
		}
		stages = append(stages, layers)
	}
	v := m.sizes(s)
	// Tokens, positions and labels have 8 bytes each, and the weights of labels 4.
	tokens, err := Formula("16*s*b").bytes(v)
	if err != nil {
		return nil, err
	}
	return Compose(stages, tokens, tokens/4*3, v)
}

// cutOf checks a cut of all layers, or makes an even one. The stages in the middle of the model take the
// remainder, because the first and last ones also have the embedding and the head. The stage with the
// further layers may have no other layers.
func cutOf(all int, cut []int, stages, furtherStage int) ([]int, error) {
	if cut == nil {
		if stages-2 > all {
			return nil, diagnostic.Errorf(ErrSetup, "%d layers do not suffice for %d stages, of which only the first and the last may have none: take fewer ranks, or fewer stages a rank", all, stages)
		}
		cut = slices.Repeat([]int{all / stages}, stages)
		left := all % stages
		for i := range left {
			cut[(stages-left+1)/2+i]++
		}
	}
	sum := 0
	for stage, layers := range cut {
		ends := stage == 0 || stage == len(cut)-1 || stage == furtherStage
		if sum += layers; layers < 0 || layers > maxLayers || layers == 0 && !ends {
			return nil, diagnostic.Errorf(ErrSetup, "stage %d has %d layers: give each one or more, or 0 at the ends", stage, layers)
		}
	}
	if len(cut) != stages || sum != all {
		return nil, diagnostic.Errorf(ErrSetup, "the cut has %d layers in %d stages, but the model has %d layers and the plan %d stages", sum, len(cut), all, stages)
	}
	return cut, nil
}

// stages returns the modules of every stage of a cut.
func (m *Model) stages(cut []int, s *Setup) [][]Module {
	parts := m.Modules(s.Further)
	stages := make([][]Module, len(cut))
	next := 1
	for stage, layers := range cut {
		stages[stage] = slices.Clone(parts[next : next+layers])
		next += layers
	}
	last := len(cut) - 1
	stages[0] = slices.Insert(stages[0], 0, parts[0])
	rest := parts[next:] // the further layers and the head
	if at := s.FurtherStage; at > 0 && at < last {
		head := len(rest) - 1
		stages[at], rest = append(stages[at], rest[:head]...), rest[head:]
	}
	stages[last] = append(stages[last], rest...)
	return stages
}

// rank returns the memory of a rank, without Peak, and the place of its peak. The modules are by stage of
// the model.
func (r *Request) rank(out *Prediction, parts [][]Module, number int) (RankMemory, int) {
	made, place := &out.Memory.Ranks[number], out.Plan.Placement
	one := RankMemory{Allowance: r.Setup.Allowance}
	var own [][]Module
	var spans [][2]int
	for _, stage := range place.On(number) { // once for each copy of the model
		one.Stages = append(one.Stages, stage%place.Depth())
		switch {
		case r.Pieces != nil:
			ends := r.Pieces.spans(out.Cut)
			spans = append(spans, [2]int{ends[stage%place.Depth()], ends[stage%place.Depth()+1]})
		case r.Model != nil:
			own = append(own, parts[stage%place.Depth()])
		}
	}
	switch {
	case r.Pieces != nil:
		one.Static = r.Pieces.static(&r.Setup, spans)
	case r.Model != nil:
		one.Static = r.Model.static(&r.Setup, own)
	}
	if r.Resident != nil {
		one.Other = r.Resident(place, number)
	}
	if made.Far != nil {
		one.Far = made.Far.Peak.Bytes
	}
	if out.Gradients != nil {
		peak := PeakWith(out.Gradients, out.Plan, out.Memory, number)
		one.Gradients, one.Transfers = peak.Classes[memory.Resident], peak.Classes[memory.Transfer]
		one.Activations = peak.Classes.Total() - one.Gradients - one.Transfers
		return one, peak.Place
	}
	for _, owner := range made.Peak.Owners {
		switch {
		case strings.Contains(owner.Name, "logits"):
			one.Logits += owner.Bytes
		case owner.Class == memory.Transfer:
			one.Transfers += owner.Bytes
		default:
			one.Activations += owner.Bytes
		}
	}
	return one, made.Peak.Place
}
