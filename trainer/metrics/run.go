package metrics

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/report"
)

const (
	buckets      = 240 // of every plot, however long the run
	lastMeasures = 32  // steps that the median of allocations is taken over
)

// Space is what is looked at on a rank: an arena or a device.
type Space interface {
	memory.Book
	All() iter.Seq[memory.Info]
}

// Config is what a run is told when its model and its runner are there. Spaces must be set.
type Config struct {
	Spaces []Space // by rank; what is live in them is the model from then on
	Stages [][]int // by rank: the numbers of its stages
	Log    io.Writer
	Every  int // Log gets one record of so many (memlog.Log.Every); 0 and 1 are all
	First  int // steps that the weights have seen before

	// Plan is that of the memory of a step; nil where it is not planned.
	Plan *layout.Memory
	// Samples returns the last records of a rank, and Failures is the folder that gets them,
	// with what was alive by name, when a step fails. Nil and "" are off.
	Samples  func(rank int) *memory.Ring
	Failures string

	LossUnit  string             // of the losses, such as "nats per byte"
	Tokens    string             // what is counted in a second; "" is "tokens"
	Baselines map[string]float64 // losses to compare with, by name
	// Seconds turns times of simulations into seconds; nil without simulations.
	Seconds func(time int64) float64
}

// Run keeps what a run comes to. Its hooks may be called by all ranks at once; all else is
// for one goroutine, between steps.
type Run struct {
	Config
	ranks    []rank
	clocks   clocks
	training bool        // a step of training runs: evaluations are not a part of the log
	log      *memlog.Log // of all ranks
	failed   failures
	failure  error // why the run has failed

	train, heldout *report.Envelope // losses over steps
	losses         [2]float64       // the first and the last
	scores         [2]Score         // likewise
	steps          int
	last           *runner.Result
	tokens         int64
	begin          time.Time
	seconds        float64
	heap           runtime.MemStats
	mallocs        uint64
	allocations    []uint64 // a ring
	met            fp8.Report
}

// Score is a loss on held-out data.
type Score struct {
	Known    bool
	Step     int // steps that the weights had seen
	Loss     float64
	Standard float64 // standard error of Loss; 0 or NaN if it is not known
}

// New returns what a run on so many ranks will keep.
func New(ranks int) *Run {
	r := &Run{
		train: report.NewEnvelope(buckets), heldout: report.NewEnvelope(buckets),
		allocations: make([]uint64, 0, lastMeasures), log: memlog.New(io.Discard),
	}
	for range ranks {
		r.ranks = append(r.ranks, rank{
			live: report.NewEnvelope(buckets), peaks: report.NewEnvelope(buckets),
			actions: make([]sample, 0, lastActions), owners: make([]memory.PeakOwner, 0, mostOwners),
		})
	}
	return r
}

// Begin takes what the run is told, and writes into the log who has what at the planned
// peak of its steps.
func (r *Run) Begin(cfg Config) {
	r.Config = cfg
	for i := range r.ranks {
		r.ranks[i].book, r.ranks[i].model = cfg.Spaces[i], cfg.Spaces[i].Live()
	}
	if cfg.Log != nil {
		r.log = memlog.New(cfg.Log)
		if cfg.Every > 1 {
			r.log.Every(cfg.Every)
		}
	}
	if cfg.Plan != nil {
		for owner := range cfg.Plan.Owners(int64(cfg.First)) {
			r.log.PeakOwner(&owner)
			r.ranks[owner.Rank].own(owner)
		}
	}
}

// Hooks returns what the runner tells. They allocate nothing, but where a step fails.
func (r *Run) Hooks() runner.Hooks {
	return runner.Hooks{Action: r.action, Microbatch: r.microbatch, Peak: r.peak, Failed: r.dump}
}

func (r *Run) action(rank int, action schedule.Action) {
	if r.training {
		r.ranks[rank].action(action)
	}
}

func (r *Run) microbatch(sample *memory.Sample) {
	if !r.training {
		return
	}
	rank := &r.ranks[sample.Rank]
	rank.stop() // the call has returned: nothing follows that of a step's last action for a while
	rank.microbatch(sample)
	r.log.Sample(sample)
}

// peak writes into the log who had what at the peak of a step whose memory is not planned.
func (r *Run) peak(_ int, owners iter.Seq[memory.PeakOwner]) {
	if !r.training {
		return
	}
	first := true
	for owner := range owners {
		rank := &r.ranks[owner.Rank]
		if first {
			rank.owners, first = rank.owners[:0], false
		}
		rank.own(owner)
		r.log.PeakOwner(&owner)
	}
}

// Step runs a step of training, and counts what it allocates on the Go heap.
func (r *Run) Step(step func() (*runner.Result, error)) (*runner.Result, error) {
	r.begin, r.training = time.Now(), true
	defer func() { r.training = false }()
	runtime.ReadMemStats(&r.heap)
	r.mallocs = r.heap.Mallocs
	result, err := step()
	for i := range r.ranks {
		r.ranks[i].stop()
	}
	if err != nil {
		r.Fail(err)
		return nil, err
	}
	runtime.ReadMemStats(&r.heap)
	r.mallocs = r.heap.Mallocs - r.mallocs
	r.AddPeaks(result)
	return result, nil
}

// Fail makes the page say that the run has failed, and why: a run that was interrupted has not.
// Step calls it; a trainer does so for what fails beside its steps.
func (r *Run) Fail(err error) {
	if !errors.Is(err, context.Canceled) {
		r.failure = err
	}
}

// AddPeaks takes the peaks of a step or an evaluation into account.
func (r *Run) AddPeaks(result *runner.Result) {
	for i := range result.Ranks {
		if of := &result.Ranks[i]; of.Peak > r.ranks[i].peak.Total() {
			r.ranks[i].peak = of.PeakClasses
		}
	}
}

// FinishStep ends the step that Step has run: the weights were updated, and have seen so many
// steps. The loss is that of the weights before, over so many tokens. It returns how long
// the step took, the update included.
func (r *Run) FinishStep(step int, result *runner.Result, loss float64, tokens int64) time.Duration {
	took := time.Since(r.begin)
	if r.steps == 0 {
		r.losses[0] = loss
	}
	r.losses[1] = loss
	r.train.Add(float64(step-1), loss)
	r.last = result
	r.clocks.add(result)
	r.tokens += tokens
	r.seconds += took.Seconds()
	if r.steps == 1 {
		r.allocations = r.allocations[:0] // the first step plans: it counts only where it is alone
	}
	if len(r.allocations) < cap(r.allocations) {
		r.allocations = append(r.allocations, r.mallocs)
	} else {
		r.allocations[r.steps%len(r.allocations)] = r.mallocs
	}
	r.steps++
	return took
}

// AddScore adds an evaluation.
func (r *Run) AddScore(s Score) {
	if !r.scores[0].Known {
		r.scores[0] = s
	}
	r.scores[1] = s
	r.heldout.Add(float64(s.Step), s.Loss)
}

// LastScore returns the last evaluation.
func (r *Run) LastScore() Score { return r.scores[1] }

// FP8 writes what the tensors of a step met into the log, a line for each role, and adds it
// up. A report of nothing writes nothing.
func (r *Run) FP8(step int64, met *fp8.Report) {
	r.met.Merge(met)
	for role, c := range met.All() {
		r.log.FP8(&memlog.FP8{
			Step: step, Role: role.String(), Tensors: c.Tensors, Frozen: c.Frozen,
			NonFinite: c.NonFinite, Saturated: c.Saturated, Underflowed: c.Underflowed,
			LeastScale: float64(c.Least), GreatestScale: float64(c.Greatest),
		})
	}
}

// Growth returns the largest growth of a microbatch, in bytes.
func (r *Run) Growth() (most int64) {
	for i := range r.ranks {
		most = max(most, r.ranks[i].growth)
	}
	return most
}

// TokensPerSecond is the mean over the steps.
func (r *Run) TokensPerSecond() float64 {
	if r.seconds == 0 {
		return 0
	}
	return float64(r.tokens) / r.seconds
}

// allocationsPerStep returns the median over the last steps.
func (r *Run) allocationsPerStep() uint64 {
	if len(r.allocations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.allocations))
	return sorted[len(sorted)/2]
}

// fullest returns the rank whose peak was highest.
func (r *Run) fullest() (fullest int) {
	for i := range r.ranks {
		if r.ranks[i].peak.Total() > r.ranks[fullest].peak.Total() {
			fullest = i
		}
	}
	return fullest
}
