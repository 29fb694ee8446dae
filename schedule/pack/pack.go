package pack

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

var (
	// ErrConfig is wrapped by errors about the configuration of a packer or about the sequences.
	ErrConfig = errors.New("pack: invalid configuration")
	// ErrMemory is returned if all sequences fit alone, but no packing that fits into the memory was found.
	ErrMemory = errors.New("pack: no packing that fits into the memory was found")
)

// Config configures a packer.
type Config struct {
	// Rule and Params make the plan of a replica, for one microbatch and for other numbers that the rule accepts.
	// Params.Microbatches is ignored.
	Rule   schedule.Rule
	Params schedule.Params
	// Costs holds the costs of the stages, usually with rates. Its lengths are ignored, and Each must be nil.
	Costs *simulate.Costs
	// Capacity is the number of messages that a link between ranks holds, at least 1, or
	// schedule.Unlimited.
	Capacity int
	// Replicas is the number of replicas that share the sequences; 0 means 1.
	Replicas int
	Limits   Limits
	// Effort is the number of changes to the packing of each replica that the last phase of the search tries;
	// 0 means DefaultEffort. More effort finds better packings, with diminishing returns.
	Effort int
}

// Limits bounds a microbatch or a rank.
type Limits struct {
	Tokens int64 // maximum number of tokens in a microbatch; 0 means no limit
	Memory int64 // maximum number of live bytes on a rank, including resident bytes; 0 means no limit
}

// DefaultEffort replaces a Config.Effort of 0.
const DefaultEffort = 800

const (
	// MaxSequences is the largest number of sequences of a step.
	MaxSequences = 1 << 16
	// maxReplicas is the largest number of replicas.
	maxReplicas = 1 << 12
	// maxPacks is the largest number of microbatches of a replica.
	maxPacks = 1 << 12
	// maxPlans is the largest number of plans that a packer keeps.
	maxPlans = 64
)

// Packing is a planned step.
type Packing struct {
	Replicas []Replica
	// Makespan is the makespan of the slowest replica, in ticks of the costs. Bound is a lower bound on
	// the makespan of every packing of these sequences for the schedule.
	Makespan, Bound int64
	// Excess is the number of bytes by which a rank exceeds Limits.Memory. Only packings made by Other can exceed the
	// limit.
	Excess int64
}

// Gap returns the fraction by which the makespan exceeds the bound.
func (p *Packing) Gap() float64 { return float64(p.Makespan)/float64(max(p.Bound, 1)) - 1 }

// add adds a replica.
func (p *Packing) add(r Replica) {
	p.Replicas, p.Makespan = append(p.Replicas, r), max(p.Makespan, r.Makespan)
}

// Microbatches numbers the packs of all replicas as one batch. It returns the sequences of each microbatch,
// and for each replica its microbatches in the order that runner.InOrder takes.
func (p *Packing) Microbatches() (packs [][]int, order [][]int) {
	for _, r := range p.Replicas {
		own := make([]int, len(r.Packs))
		for mb := range own {
			own[r.Plan.BatchIndex(mb)] = len(packs) + mb
		}
		packs, order = append(packs, r.Packs...), append(order, own)
	}
	return packs, order
}

// Replica is the part of a step that one replica runs.
type Replica struct {
	// Packs holds the microbatches in the order of the plan. Each is a list of indices of sequences, in
	// ascending order.
	Packs    [][]int
	Sizes    []lengths.Size // of the packs
	Plan     *schedule.Plan // proven, with transfers; nil if the replica has no sequences
	Makespan int64
	Ideal    int64   // the computing time of the busiest rank
	Peaks    []int64 // by rank: the peak of the live bytes
}

// TooLongError is the error for a sequence that exceeds a limit even if it is the only sequence of its step. It wraps
// ErrTooLong.
type TooLongError struct {
	Sequence int   // index of the longest sequence
	Length   int64 // in tokens
	Longest  int64 // the length of the longest sequence that fits; 0 if none does
	TooMany  int   // the number of sequences that do not fit
	// Rank is the rank that would hold the most bytes over Limits.Memory, and Excess their number. If the
	// sequence exceeds Limits.Tokens, Rank is -1, and Excess counts tokens.
	Rank   int
	Excess int64
}

// ErrTooLong is wrapped by a TooLongError.
var ErrTooLong = errors.New("pack: sequence too long")

// Error returns a message with the sequence, its length, the excess over the limit, and the longest length
// that fits, if any does.
func (e *TooLongError) Error() string {
	if e.Longest == 0 {
		return fmt.Sprintf("%v: no sequence fits, because rank %d is full: for sequence %d, counted from 0, of %d tokens it needs %s more", ErrTooLong, e.Rank, e.Sequence, e.Length, units.Size(e.Excess))
	}
	what := fmt.Sprintf("%s on rank %d", units.Size(e.Excess), e.Rank)
	if e.Rank < 0 {
		what = fmt.Sprintf("%d tokens", e.Excess)
	}
	text := fmt.Sprintf("%v: sequence %d, counted from 0, has %d tokens, which is %s over the limit: the longest that fits has %d", ErrTooLong, e.Sequence, e.Length, what, e.Longest)
	if e.TooMany > 1 {
		text += fmt.Sprintf("; %d sequences are too long", e.TooMany)
	}
	return text
}

// Unwrap returns ErrTooLong.
func (e *TooLongError) Unwrap() error { return ErrTooLong }

// Packer plans steps. It keeps the plans that it makes, so that later steps take less time. It must not be used by
// several goroutines at the same time.
type Packer struct {
	cfg     Config
	plans   map[int]*prepared // by number of microbatches
	alone   *prepared         // the plan with one microbatch
	longest int64             // the length of the longest sequence that fits alone
}

// prepared is a plan for a number of microbatches.
type prepared struct {
	plan      *schedule.Plan
	evaluator *simulate.Evaluator
	proven    bool
	inFlight  int   // the largest number of microbatches in flight on a stage
	safe      int64 // if no microbatch has more tokens, they fit into the memory in any order
	err       error // the rule has no plan for the number of microbatches, or there is no evaluator
}

// New returns a packer. Errors wrap ErrConfig, or are those of the rule, of the costs, of lower.Transfers and of
// simulate.NewEvaluator.
func New(cfg Config) (*Packer, error) {
	cfg.Replicas, cfg.Effort = cmp.Or(cfg.Replicas, 1), cmp.Or(cfg.Effort, DefaultEffort)
	switch {
	case cfg.Rule == nil:
		return nil, diagnostic.Errorf(ErrConfig, "there is no rule: give the rule of a schedule")
	case cfg.Replicas < 1 || cfg.Replicas > maxReplicas:
		return nil, diagnostic.Errorf(ErrConfig, "%d replicas: use 1 to %d", cfg.Replicas, maxReplicas)
	case cfg.Effort < 1:
		return nil, diagnostic.Errorf(ErrConfig, "an effort of %d simulations: use 1 or more", cfg.Effort)
	case cfg.Limits.Tokens < 0 || cfg.Limits.Memory < 0:
		return nil, diagnostic.Errorf(ErrConfig, "limits of %d tokens and %d bytes: use 1 or more, or 0 for no limit", cfg.Limits.Tokens, cfg.Limits.Memory)
	case cfg.Capacity == 0 || cfg.Capacity < schedule.Unlimited:
		return nil, diagnostic.Errorf(ErrConfig, "links for %d messages: use 1 or more, or %d for no limit", cfg.Capacity, schedule.Unlimited)
	}
	place := &cfg.Params.Placement
	if err := cfg.Costs.ValidateFor(place.Ranks, place.Depth(), place.Stages()); err != nil {
		return nil, err
	}
	p := &Packer{cfg: cfg, plans: map[int]*prepared{}, longest: lengths.MaxLength}
	if p.alone = p.prepare(1); p.alone.err != nil {
		return nil, p.alone.err
	}
	if one := p.prepare(2 * place.Ranks); one.plan != nil && one.err != nil { // the plan may have joined pairs, unlike the plan for one microbatch
		return nil, one.err
	}
	if cfg.Limits.Tokens > 0 {
		p.longest = cfg.Limits.Tokens
	}
	if cfg.Limits.Memory > 0 {
		p.longest = largest(p.longest, func(length int64) bool {
			_, excess := p.excess(p.aloneWith(length))
			return excess <= 0
		})
	}
	return p, nil
}

// Longest returns the length of the longest sequence that fits alone, or 0 if none does.
func (p *Packer) Longest() int64 { return p.longest }

// aloneWith returns the evaluator of a step with one sequence of the given length.
func (p *Packer) aloneWith(length int64) *simulate.Evaluator {
	p.alone.evaluator.Set(0, lengths.Of(length))
	return p.alone.evaluator
}

// largest returns the largest number up to a limit that fits, or 0 if 1 does not.
func largest(limit int64, fits func(int64) bool) (n int64) {
	return int64(sort.Search(int(limit), func(i int) bool { return !fits(int64(i) + 1) }))
}

// excess returns the largest number of bytes by which a rank exceeds the memory, and the rank. The number is negative
// if all ranks have room.
func (p *Packer) excess(e *simulate.Evaluator) (rank int, excess int64) {
	excess = math.MinInt64
	for r := range p.cfg.Params.Placement.Ranks {
		if over := e.Peak(r) - p.cfg.Limits.Memory; over > excess {
			rank, excess = r, over
		}
	}
	return rank, excess
}

// prepare returns the plan for a number of microbatches.
func (p *Packer) prepare(microbatches int) *prepared {
	if one := p.plans[microbatches]; one != nil {
		return one
	}
	if len(p.plans) >= maxPlans {
		clear(p.plans)
	}
	one, params := &prepared{safe: lengths.MaxLength}, p.cfg.Params
	p.plans[microbatches] = one
	params.Microbatches = microbatches
	if one.plan, one.err = p.cfg.Rule(params); one.err == nil && params.Placement.Ranks > 1 {
		one.plan, one.err = lower.Transfers(one.plan, p.cfg.Capacity)
	}
	if one.err == nil {
		one.evaluator, one.err = simulate.NewEvaluator(one.plan, p.cfg.Costs, p.cfg.Capacity)
	}
	if one.err != nil || p.cfg.Limits.Memory == 0 {
		return one
	}
	one.inFlight = inFlight(one.plan)
	one.safe = largest(lengths.MaxLength, func(tokens int64) bool {
		for mb := range microbatches {
			one.evaluator.Set(mb, lengths.Of(tokens))
		}
		_, excess := p.excess(one.evaluator)
		return excess <= 0
	})
	return one
}

// inFlight returns the largest number of microbatches that have a forward, and no backward yet, on a stage.
func inFlight(plan *schedule.Plan) (most int) {
	flying := make([]int, plan.Placement.Stages())
	for rank := range plan.Programs {
		for a := range plan.All(rank) {
			switch n := &flying[a.Stage()]; {
			case a.Kind() == schedule.F:
				*n++
				most = max(most, *n)
			case plan.Ends(a.Stage(), a.Kind()):
				*n--
			}
		}
	}
	return max(most, 1)
}

// prove proves the plan once.
func (o *prepared) prove(capacity int) error {
	if !o.proven {
		if _, err := check.Prove(o.plan, capacity); err != nil {
			return err
		}
	}
	o.proven = true
	return nil
}

// Pack plans a step of sequences with the given lengths in tokens. If a sequence exceeds a limit even if it is alone,
// the error is a *[TooLongError]. If no packing that fits into the memory is found, it wraps ErrMemory. Other errors
// wrap ErrConfig, or are those of check.Prove for a plan of the rule.
func (p *Packer) Pack(sequences []int64) (*Packing, error) {
	if err := p.check(sequences); err != nil {
		return nil, err
	}
	b := newBatch(p, sequences)
	offsets := make([]float64, p.cfg.Replicas)
	dealt := b.deal(offsets)
	shapes := b.survey(dealt[0])
	best, err := b.pack(dealt, shapes)
	for range redeals {
		if p.cfg.Replicas == 1 {
			break
		}
		if err == nil {
			for r, t := range best { // the time that a replica takes in addition to its work
				offsets[r] = float64(t.time) - b.workOf(dealt[r])
			}
			other := b.deal(offsets)
			if trials, fault := b.pack(other, shapes); fault == nil && slowest(trials).time < slowest(best).time {
				best, dealt = trials, other
				continue
			}
			break
		}
	}
	if err != nil {
		return nil, err
	}
	for range best { // the shapes of the first replica may not suit the slowest
		last := slowest(best)
		if last.time-last.time/resurvey <= slowest(slices.DeleteFunc(slices.Clone(best), func(t *trial) bool { return t == last })).time {
			break
		}
		items := slices.Concat(last.packs...)
		b.sortByWork(items)
		own := b.try(items, b.survey(items))
		if own == nil || !own.better(last) {
			break
		}
		best[slices.Index(best, last)] = own
	}
	packing := &Packing{Bound: b.bound()}
	for _, t := range best {
		t.improve(p.cfg.Effort)
		replica, err := t.replica()
		if err == nil && t.excess > 0 {
			rank, _ := p.excess(t.one.evaluator)
			err = fmt.Errorf("%w: rank %d would hold %d bytes too many", ErrMemory, rank, t.excess)
		}
		if err != nil {
			return nil, err
		}
		packing.add(replica)
	}
	return packing, nil
}

// A replica gets its own survey if it is slower than all others by more than 1/resurvey of its time.
const resurvey = 20

// redeals is the number of times that sequences are dealt again to replicas.
const redeals = 2

// check returns an error for sequences that no packing can contain, and for too few or too many of them.
func (p *Packer) check(sequences []int64) error {
	if len(sequences) == 0 || len(sequences) > MaxSequences {
		return diagnostic.Errorf(ErrConfig, "%d sequences: give 1 to %d", len(sequences), MaxSequences)
	}
	long := &TooLongError{Longest: p.longest, Rank: -1}
	for i, length := range sequences {
		if length < 1 || length > lengths.MaxLength {
			return diagnostic.Errorf(ErrConfig, "sequence %d has %d tokens: use 1 to %d", i, length, lengths.MaxLength)
		}
		if length > p.longest {
			long.TooMany++
			if length > long.Length {
				long.Sequence, long.Length = i, length
			}
		}
	}
	if long.TooMany == 0 {
		return nil
	}
	if tokens := p.cfg.Limits.Tokens; tokens > 0 && long.Length > tokens {
		long.Excess = long.Length - tokens
	} else {
		long.Rank, long.Excess = p.excess(p.aloneWith(long.Length))
	}
	return long
}
