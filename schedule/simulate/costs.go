package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// ErrCosts is wrapped by every error about costs.
var ErrCosts = errors.New("schedule: invalid costs")

// Costs are the times of the actions of a plan, and the bytes that they allocate and free. Times
// are whole numbers of steps, of which Scale make one Unit, so that a simulation is exact. The
// zero value is not valid: there is at least one stage. Functions that take Costs do not change
// them.
type Costs struct {
	Unit  string // of time, for people: "ns", "ms", ...
	Scale int64  // how many steps make one Unit; 0 is 1
	// Stages are by stage of the model; one entry is for all stages. If a plan has copies of the
	// model they may also be by stage of the plan.
	Stages []StageCosts
	// Each, if it is not nil, returns the time of a computation in place of the times of Stages, for
	// microbatches that differ. It is called for F, I, W and B, more than once for one action, and
	// must return the same each time. A joined pair takes the sum, and the plan is run in full.
	// Files cannot express it.
	Each    func(schedule.Action) int64
	Latency int64 // of a hop between ranks; it occupies neither of them
	PerMiB  int64 // time that a MiB takes on a link between ranks
	// FarLatency is the latency of a copy between near and far memory, and FarPerMiB the time that a
	// MiB takes. Each rank has this rate in both directions at once.
	FarLatency, FarPerMiB int64
	Links                 []LinkCosts // links that differ from Latency and PerMiB; nil is none
	// Microbatch, if it is not 0, says that sizes count microbatches and not bytes: one microbatch
	// saves this much over all stages that it visits on a rank.
	Microbatch int64
	// Resident is by rank the bytes that are always allocated, without those of its stages; nil is
	// 0.
	Resident []int64
}

// StageCosts are the costs of one microbatch on one stage: times in steps and sizes
// in bytes. FreedByI of the bytes that F saves are freed at I, and the rest at W; B frees all of
// them. So does I on a frozen stage, and F on a stage without backward.
type StageCosts struct {
	F         int64 `json:"f"`
	I         int64 `json:"i,omitempty"`
	W         int64 `json:"w,omitempty"`
	B         int64 `json:"b,omitempty"`         // 0: I + W
	Joined    int64 `json:"joined,omitempty"`    // of a joined pair whose forward is of this stage; 0: the sum of the two
	Recompute int64 `json:"recompute,omitempty"` // added to the first backward action of a stage that recomputes
	Output    int64 `json:"output,omitempty"`    // of F for the next stage
	Gradient  int64 `json:"gradient,omitempty"`  // of the backward for the stage before
	Saved     int64 `json:"saved,omitempty"`     // by F for the backward
	FreedByI  int64 `json:"freed_by_i,omitempty"`
	Carry     int64 `json:"carry,omitempty"`     // by I for W
	Offloaded int64 `json:"offloaded,omitempty"` // of the saved bytes: those that an OFFLOAD moves; 0: all of them
	// Resident is always allocated on the stage's rank: its weights, their gradients and the
	// optimizer's state.
	Resident int64 `json:"resident,omitempty"`
	// Quantize is the time of QUANTIZE, once in a step. It makes copies of the stage's weights:
	// ForwardWeights bytes for its forward and for the recompute of its backward, and
	// BackwardWeights bytes for its backward, if it has one.
	Quantize        int64 `json:"quantize,omitempty"`
	ForwardWeights  int64 `json:"forward_weights,omitempty"`
	BackwardWeights int64 `json:"backward_weights,omitempty"`
}

// LinkCosts are the costs of the link from one rank to another one, in both of its
// directions of flow: activations and gradients.
type LinkCosts struct {
	From    int   `json:"from" whole:"a rank,0,16383"`
	To      int   `json:"to" whole:"a rank,0,16383"`
	Latency int64 `json:"latency,omitempty"`
	PerMiB  int64 `json:"per_mib,omitempty"`
}

const (
	// maxCost bounds every time and every size of the costs: 78 hours in nanoseconds,
	// 256 TiB.
	maxCost = 1 << 48
	// maxTotal bounds the times and the bytes of a whole step.
	maxTotal = 1 << 62
	// maxUnit bounds the name of the unit in bytes.
	maxUnit = 32
	mebi    = 1 << 20
)

// Validate reports every fault of the costs at once. Each of the joined errors wraps
// ErrCosts.
func (c *Costs) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrCosts}, args...)...))
	}
	amount := func(v int64, format string, args ...any) {
		if v < 0 || v > maxCost {
			fault("%s is %d: it must be 0 to %d", fmt.Sprintf(format, args...), v, int64(maxCost))
		}
	}
	if c == nil {
		return fmt.Errorf("%w: there are none", ErrCosts)
	}
	if len(c.Unit) > maxUnit {
		fault("the name of the unit has %d bytes: it may have %d", len(c.Unit), maxUnit)
	}
	amount(c.Scale, "the scale")
	amount(c.Latency, "the latency")
	amount(c.PerMiB, "the time of a MiB")
	amount(c.FarLatency, "the latency of far memory")
	amount(c.FarPerMiB, "the time of a MiB to far memory")
	amount(c.Microbatch, "the size of a microbatch")
	if len(c.Stages) < 1 || len(c.Stages) > schedule.MaxStages {
		fault("there are costs of %d stages: give one entry for all, or one for each", len(c.Stages))
	}
	for stage := range c.Stages {
		s := &c.Stages[stage]
		for f, v := range reflect.ValueOf(*s).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			amount(v.Int(), "%s of stage %d", name, stage)
		}
		if s.FreedByI > s.Saved {
			fault("stage %d frees %d bytes at I of the %d that it has saved: free at most those", stage, s.FreedByI, s.Saved)
		}
		if s.Offloaded > s.Saved {
			fault("stage %d offloads %d bytes of the %d that it has saved: offload at most those", stage, s.Offloaded, s.Saved)
		}
	}
	for i, l := range c.Links {
		if l.From < 0 || l.To < 0 || l.From == l.To {
			fault("link %d is from rank %d to rank %d: name two ranks, from 0 on", i, l.From, l.To)
		}
		amount(l.Latency, "the latency of link %d", i)
		amount(l.PerMiB, "the time of a MiB on link %d", i)
	}
	for rank, bytes := range c.Resident {
		amount(bytes, "what is resident on rank %d", rank)
	}
	return errors.Join(faults...)
}

// Units returns a time in units, given in steps.
func (c *Costs) Units(steps int64) float64 { return float64(steps) / float64(max(c.Scale, 1)) }

// ValidateFor is Validate, and reports costs that are for another number of ranks or stages. It
// accepts any of several numbers of stages.
func (c *Costs) ValidateFor(ranks int, stages ...int) error {
	faults := []error{c.Validate()}
	if faults[0] != nil {
		return faults[0]
	}
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrCosts}, args...)...))
	}
	if n := len(c.Stages); n != 1 && !slices.Contains(stages, n) {
		fault("there are costs of %d stages for a plan of %d: give one entry for all, or one for each", n, stages[0])
	}
	if n := len(c.Resident); n != 0 && n != ranks {
		fault("resident bytes are given for %d ranks of %d: give all, or none", n, ranks)
	}
	for i, l := range c.Links {
		if l.From >= ranks || l.To >= ranks {
			fault("link %d is from rank %d to rank %d: ranks are 0 to %d", i, l.From, l.To, ranks-1)
		}
	}
	return errors.Join(faults...)
}

// fit reports every fault of the costs, alone and for this plan.
func (c *Costs) fit(plan *schedule.Plan) error {
	p := plan.Placement
	if err := c.ValidateFor(p.Ranks, p.Depth(), p.Stages()); err != nil {
		return err
	}
	var actions, dearest, largest float64
	for rank := range plan.Programs {
		actions += float64(plan.Actions(rank))
	}
	actions = max(actions, 1) // the cost of a message is computed even if there is none
	for i := range c.Stages {
		s := &c.Stages[i]
		dearest = max(dearest, float64(s.F+s.I+s.W+s.B+s.Joined+s.Recompute+s.Quantize))
		largest = max(largest, float64(s.Output+s.Gradient+s.Saved+s.Carry+s.ForwardWeights+s.BackwardWeights))
	}
	hop := float64(c.Latency+c.FarLatency) + math.Ceil(float64(c.PerMiB+c.FarPerMiB)*largest/mebi)
	for _, l := range c.Links {
		hop = max(hop, float64(l.Latency)+math.Ceil(float64(l.PerMiB)*largest/mebi))
	}
	if actions*(dearest+hop) > maxTotal/2 || actions*largest > maxTotal/2 {
		return fmt.Errorf("%w: they are too large for a step of %.0f actions, whose time and bytes must stay below 2^62: choose a longer step of time, or smaller sizes", ErrCosts, actions)
	}
	return nil
}

// Of returns the costs of a stage of a plan that they fit, borrowed. All copies of the model cost
// the same.
func (c *Costs) Of(stage int) *StageCosts { return &c.Stages[stage%len(c.Stages)] }

// ResidentOf returns the bytes that are always allocated on a rank of a plan.
func (c *Costs) ResidentOf(p schedule.Placement, rank int) (bytes int64) {
	if c.Resident != nil {
		bytes = c.Resident[rank]
	}
	for stage, home := range p.Rank {
		if home == rank {
			bytes += c.Of(stage).Resident
		}
	}
	return bytes
}

// Link returns the costs of a link between ranks: the last entry for it counts.
func (c *Costs) Link(from, to int) LinkCosts {
	link := LinkCosts{From: from, To: to, Latency: c.Latency, PerMiB: c.PerMiB}
	for _, l := range c.Links {
		if l.From == from && l.To == to {
			link = l
		}
	}
	return link
}

// transmission returns how long this many bytes occupy the link, rounded up to whole steps.
func (l LinkCosts) transmission(bytes int64) int64 {
	hi, lo := bits.Mul64(uint64(bytes), uint64(l.PerMiB))
	lo, carry := bits.Add64(lo, mebi-1, 0)
	time, _ := bits.Div64(hi+carry, lo, mebi) // fit has seen that it is no more than 2^62
	return int64(time)
}

// Backward returns the time of a backward that is not split, in steps.
func (s *StageCosts) Backward() int64 {
	if s.B != 0 {
		return s.B
	}
	return s.I + s.W
}
