package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
)

// ErrCosts is wrapped by every error about costs.
var ErrCosts = errors.New("schedule: invalid costs")

// Costs holds the times of the actions of a plan, and the bytes that they allocate and free. Times
// are integers in ticks of 1/Scale Unit, so that a simulation is exact. The zero value is invalid,
// because it has no stages. Functions that take Costs do not modify them.
type Costs struct {
	Unit    string `json:"unit"`    // the unit of time, for display: "ns", "ms", ...
	Scale   int64  `json:"scale"`   // ticks per Unit; 0 means 1
	Latency int64  `json:"latency"` // the latency of a hop between ranks, which occupies neither rank
	PerMiB  int64  `json:"per_mib"` // the time per MiB on a link between ranks
	// FarLatency is the latency of a copy between near and far memory, and FarPerMiB its time per
	// MiB. Each rank copies at this rate in both directions at the same time.
	FarLatency int64 `json:"far_latency,omitempty"`
	FarPerMiB  int64 `json:"far_per_mib,omitempty"`
	// Replicas is the number of replicas that share a step; 0 means 1. Shard is the level at which
	// they shard state. ReplicaLatency and ReplicaPerMiB are the costs of exchanges between the
	// replicas of a rank: reductions and gathers each run at this rate, in both directions at the same time.
	Replicas       int   `json:"replicas,omitempty"`
	Shard          int   `json:"shard,omitempty"`
	ReplicaLatency int64 `json:"replica_latency,omitempty"`
	ReplicaPerMiB  int64 `json:"replica_per_mib,omitempty"`
	// Microbatch, if it is not 0, means that sizes count microbatches instead of bytes. Its value is
	// the saved size of one microbatch over all its stages on a rank.
	Microbatch int64       `json:"microbatch,omitempty"`
	Links      []LinkCosts `json:"links"` // the links whose costs override Latency and PerMiB
	// Resident holds, by rank, the number of bytes that are always allocated, in addition to the
	// resident bytes of the rank's stages. Empty means 0 for all ranks.
	Resident []int64 `json:"resident"`
	// Stages holds the costs of each stage of the model, or one entry for all stages. If a plan has
	// copies of the model, Stages may instead have an entry for each stage of the plan.
	Stages []StageCosts `json:"stages"`
	// Lengths holds the sizes of the microbatches, in the order of the batch. They are required if a
	// stage has rates. No repeats are skipped if the costs of microbatches differ.
	Lengths []lengths.Size `json:"lengths,omitempty"`
	// Each, if it is not nil, returns the time of a computation and overrides the times of Stages,
	// for microbatches with different costs. It is called for F, I, W and B, possibly several times
	// for one action, and must return the same time for the same action. A joined pair takes the
	// sum of its two times, and no repeats are skipped. Files of costs cannot contain Each.
	Each func(schedule.Action) int64 `json:"-"`
}

// StageCosts holds the costs of one microbatch on one stage: times in ticks and sizes in bytes. Of
// the bytes saved by F, I frees FreedByI and W frees the rest. B frees all of them, and so do I on a
// frozen stage and F on a stage without a backward.
type StageCosts struct {
	F         int64 `json:"f"`
	I         int64 `json:"i,omitempty"`
	W         int64 `json:"w,omitempty"`
	B         int64 `json:"b,omitempty"`         // 0 means I + W
	Joined    int64 `json:"joined,omitempty"`    // the time, without recomputation, of a forward of this stage joined with a backward; 0 means the sum of both
	Recompute int64 `json:"recompute,omitempty"` // added to the first backward action of a stage that recomputes
	Output    int64 `json:"output,omitempty"`    // the output of F for the next stage
	Gradient  int64 `json:"gradient,omitempty"`  // the gradient of the backward for the previous stage
	Saved     int64 `json:"saved,omitempty"`     // the state saved by F for the backward
	FreedByI  int64 `json:"freed_by_i,omitempty"`
	Carry     int64 `json:"carry,omitempty"`     // the state saved by I for W
	Offloaded int64 `json:"offloaded,omitempty"` // the saved bytes that OFFLOAD moves; 0 means all
	// Resident is the size of the memory that is always allocated on the stage's rank: its weights,
	// their gradients and the optimizer's state.
	Resident int64 `json:"resident,omitempty"`
	// Quantize is the time of QUANTIZE, which runs once per step and makes copies of the stage's
	// weights: ForwardWeights bytes for its forward and for recomputation, and BackwardWeights bytes
	// for its backward, if it has one.
	Quantize        int64 `json:"quantize,omitempty"`
	ForwardWeights  int64 `json:"forward_weights,omitempty"`
	BackwardWeights int64 `json:"backward_weights,omitempty"`
	// Weights, Gradients and Optimizer are the sizes of the stage's weights, of their gradients and of
	// the optimizer's state. They are allocated on the stage's rank in addition to Resident. If Shard
	// is at least the level at which one of them is sharded, the rank permanently allocates only its
	// part; an UNSHARD then allocates Weights until the RESHARD, and a ZERO_GRAD allocates Gradients
	// until the WAIT_REDUCE.
	Weights   int64 `json:"weights,omitempty"`
	Gradients int64 `json:"gradients,omitempty"`
	Optimizer int64 `json:"optimizer,omitempty"`
	// PerToken and PerSquare are the rates at which the costs above grow with the size of a microbatch: per token, and
	// per unit of the sum of the squared lengths of its sequences. The costs above are then those of an empty
	// microbatch.
	PerToken  Rates `json:"per_token,omitzero"`
	PerSquare Rates `json:"per_square,omitzero"`
}

// LinkCosts holds the costs of the link from one rank to another, for both activations and
// gradients.
type LinkCosts struct {
	From    int   `json:"from"`
	To      int   `json:"to"`
	Latency int64 `json:"latency,omitempty"`
	PerMiB  int64 `json:"per_mib,omitempty"`
}

const (
	// maxCost is the upper bound of every time and every size: 78 hours in nanoseconds, or 256 TiB.
	maxCost = 1 << 48
	// maxTotal is the upper bound of the times and bytes of a whole step.
	maxTotal = 1 << 62
	// maxUnit is the maximum length of Costs.Unit in bytes.
	maxUnit = 32
	// MaxReplicas is the maximum number of replicas.
	MaxReplicas = 1 << 14
	mebi        = 1 << 20
)

// Validate reports all faults of the costs as joined errors, each of which wraps ErrCosts.
func (c *Costs) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(ErrCosts, format, args...))
	}
	amount := func(v int64, format string, args ...any) {
		if v < 0 || v > maxCost {
			fault("%s is %d: it must be 0 to %d", fmt.Sprintf(format, args...), v, int64(maxCost))
		}
	}
	if c == nil {
		return diagnostic.Errorf(ErrCosts, "the costs are nil")
	}
	if len(c.Unit) > maxUnit {
		fault("the name of the unit has %d bytes: use at most %d", len(c.Unit), maxUnit)
	}
	amount(c.Scale, "the scale")
	amount(c.Latency, "the latency")
	amount(c.PerMiB, "the time of a MiB")
	amount(c.FarLatency, "the latency of far memory")
	amount(c.FarPerMiB, "the time of a MiB to far memory")
	amount(c.ReplicaLatency, "the latency between replicas")
	amount(c.ReplicaPerMiB, "the time of a MiB between replicas")
	if c.Replicas < 0 || c.Replicas > MaxReplicas {
		fault("there are %d replicas: use 0 to %d", c.Replicas, MaxReplicas)
	}
	if c.Shard < 0 || c.Shard > schedule.ShardWeights {
		fault("the shard level is %d: use 0 to %d", c.Shard, schedule.ShardWeights)
	}
	amount(c.Microbatch, "the size of a microbatch")
	if len(c.Stages) < 1 || len(c.Stages) > schedule.MaxStages {
		fault("there are costs of %d stages: give one entry for all, or one for each", len(c.Stages))
	}
	for stage := range c.Stages {
		s := &c.Stages[stage]
		for f, v := range reflect.ValueOf(*s).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if v.Kind() == reflect.Int64 {
				amount(v.Int(), "%s of stage %d", name, stage)
				continue
			}
			if v.IsZero() {
				continue
			}
			for of, rate := range v.Fields() {
				if r := rate.Float(); !(r >= 0 && r <= maxCost) {
					what, _, _ := strings.Cut(of.Tag.Get("json"), ",")
					fault("%s of %s of stage %d is %v: it must be 0 to %d", what, name, stage, r, int64(maxCost))
				}
			}
		}
		for i, r := range [...]*Rates{&s.PerToken, &s.PerSquare} {
			if r.FreedByI > r.Saved || r.Offloaded > r.Saved {
				fault("stage %d frees %v bytes at I and offloads %v for each %s, but has saved only %v: use at most the saved bytes", stage, r.FreedByI, r.Offloaded, [...]string{"token", "square"}[i], r.Saved)
			}
		}
		if s.FreedByI > s.Saved {
			fault("stage %d frees %d bytes at I, but has saved only %d: free at most the saved bytes", stage, s.FreedByI, s.Saved)
		}
		if s.Offloaded > s.Saved {
			fault("stage %d offloads %d bytes, but has saved only %d: offload at most the saved bytes", stage, s.Offloaded, s.Saved)
		}
	}
	if c.HasRates() && slices.ContainsFunc(c.Stages, func(s StageCosts) bool { return s.Joined > 0 }) {
		fault("the costs depend on the length of a microbatch, but have joined pairs, whose two microbatches may differ: leave out joined, and a pair takes the sum of its two times")
	}
	for mb, size := range c.Lengths {
		if err := size.Validate(); err != nil {
			fault("microbatch %d: %s", mb, diagnostic.Text(err, nil))
			break
		}
	}
	for i, l := range c.Links {
		if l.From < 0 || l.To < 0 || l.From == l.To {
			fault("link %d is from rank %d to rank %d: use two different ranks, from 0", i, l.From, l.To)
		}
		amount(l.Latency, "the latency of link %d", i)
		amount(l.PerMiB, "the time of a MiB on link %d", i)
	}
	for rank, bytes := range c.Resident {
		amount(bytes, "the resident size of rank %d", rank)
	}
	return errors.Join(faults...)
}

// Units converts a time from ticks to units.
func (c *Costs) Units(ticks int64) float64 { return float64(ticks) / float64(max(c.Scale, 1)) }

// ValidateFor is like Validate, but also reports costs that do not fit the number of ranks or any of
// the given numbers of stages.
func (c *Costs) ValidateFor(ranks int, stages ...int) error {
	faults := []error{c.Validate()}
	if faults[0] != nil {
		return faults[0]
	}
	fault := func(format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(ErrCosts, format, args...))
	}
	if n := len(c.Stages); n != 1 && !slices.Contains(stages, n) {
		fault("there are costs of %d stages, but the plan has %d: give one entry for all, or one for each", n, stages[0])
	}
	if n := len(c.Resident); n != 0 && n != ranks {
		fault("resident bytes are given for %d of %d ranks: give them for all or none", n, ranks)
	}
	for i, l := range c.Links {
		if l.From >= ranks || l.To >= ranks {
			fault("link %d is from rank %d to rank %d: ranks are 0 to %d", i, l.From, l.To, ranks-1)
		}
	}
	return errors.Join(faults...)
}

// fit reports all faults of the costs for a plan.
func (c *Costs) fit(plan *schedule.Plan) error {
	p := plan.Placement
	if err := errors.Join(c.ValidateFor(p.Ranks, p.Depth(), p.Stages()), c.ValidateLengths(plan.Microbatches)); err != nil {
		return err
	}
	biggest := c.maxSize()
	var actions, dearest, largest float64
	for rank := range plan.Programs {
		actions += float64(plan.Actions(rank))
	}
	actions = max(actions, 1) // the cost of a message is computed even if the plan has none
	for i := range c.Stages {
		s := c.Stages[i]
		if c.Lengths != nil {
			s = s.At(biggest)
		}
		dearest = max(dearest, float64(s.F+s.I+s.W+s.B+s.Joined+s.Recompute+s.Quantize))
		largest = max(largest, float64(s.Output+s.Gradient+s.Saved+s.Carry+s.ForwardWeights+s.BackwardWeights+s.Weights+2*s.Gradients))
	}
	hop := float64(c.Latency+c.FarLatency+c.ReplicaLatency) + math.Ceil(float64(c.PerMiB+c.FarPerMiB+c.ReplicaPerMiB)*largest/mebi)
	for _, l := range c.Links {
		hop = max(hop, float64(l.Latency)+math.Ceil(float64(l.PerMiB)*largest/mebi))
	}
	if actions*(dearest+hop) > maxTotal/2 || actions*largest > maxTotal/2 {
		return diagnostic.Errorf(ErrCosts, "the costs are too large for a step of %.0f actions, whose time and bytes must be less than 2^62: use a coarser scale, or smaller sizes", actions)
	}
	return nil
}

// Of returns the costs of a stage of a plan. The result aliases Stages. The costs must fit the plan. If Stages has an
// entry for each stage of the model, all copies of the model have the same costs.
func (c *Costs) Of(stage int) *StageCosts { return &c.Stages[stage%len(c.Stages)] }

// ResidentOf returns the bytes that are always allocated on a rank of a plan, including its stages.
func (c *Costs) ResidentOf(p schedule.Placement, rank int) (bytes int64) {
	if len(c.Resident) > 0 {
		bytes = c.Resident[rank]
	}
	for stage, home := range p.Rank {
		if home == rank {
			bytes += c.Of(stage).Resident + c.state(stage)
		}
	}
	return bytes
}

// Link returns the costs of the link from one rank to another. If Links has several entries for the
// link, the last one applies.
func (c *Costs) Link(from, to int) LinkCosts {
	link := LinkCosts{From: from, To: to, Latency: c.Latency, PerMiB: c.PerMiB}
	for _, l := range c.Links {
		if l.From == from && l.To == to {
			link = l
		}
	}
	return link
}

// transmission returns the time for which the bytes occupy the link, rounded up to whole ticks.
func (l LinkCosts) transmission(bytes int64) int64 {
	hi, lo := bits.Mul64(uint64(bytes), uint64(l.PerMiB))
	lo, carry := bits.Add64(lo, mebi-1, 0)
	time, _ := bits.Div64(hi+carry, lo, mebi) // fit ensures that the result is at most 2^62
	return int64(time)
}

// Backward returns the time of a full backward, in ticks.
func (s *StageCosts) Backward() int64 {
	if s.B != 0 {
		return s.B
	}
	return s.I + s.W
}
