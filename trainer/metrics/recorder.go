package metrics

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/report"
)

const (
	buckets      = 240 // number of buckets in the plot of losses, however long the run is
	lastMeasures = 32  // number of steps over which the median of allocations is taken
)

// Space is the view of a rank's memory that a Recorder reads: an arena or a device.
type Space interface {
	memory.Book
	All() iter.Seq[memory.Info]
}

// Config configures a run once its model and its runner exist. Spaces must be set.
type Config struct {
	Spaces []Space // by rank; whatever is live at Begin is the model
	Stages [][]int // by rank: the numbers of the rank's stages
	Log    io.Writer
	Every  int // Log gets one of this many records (memlog.Log.Every); 0 and 1 mean all
	First  int // number of steps that the weights have already been trained for

	// Plan is the memory plan of a step; nil if memory is not planned.
	Plan *layout.Memory
	// Samples returns a rank's last records. If a step fails, they are written to the folder
	// Failures, together with the live memory by name. If Samples is nil or Failures is "",
	// nothing is written.
	Samples  func(rank int) *memory.Ring
	Failures string

	LossUnit  string             // unit of the losses, such as "nats per byte"
	Tokens    string             // the unit that is counted per second; "" means "tokens"
	Baselines map[string]float64 // losses to compare with, by name
	// Costs, if set, are compared with the run: the plan of its steps is simulated with them, for
	// links of the given Capacity. Seconds converts their times to seconds.
	Costs    *simulate.Costs
	Capacity int
	Seconds  func(time int64) float64
}

// Recorder records a run. All ranks may call its hooks concurrently; everything else must be called
// from one goroutine, between steps.
type Recorder struct {
	Config
	ranks    []rankRecord
	clocks   clocks
	training bool        // whether a training step is running: the log excludes evaluations
	log      *memlog.Log // of all ranks
	mu       sync.Mutex
	memory   memreport.Log // the records of log, without thinning; guarded by mu during a step
	failed   failures
	failure  error // why the run failed

	train, heldout *report.Envelope // losses over steps
	losses         [2]float64       // the first and the last
	scores         [2]Score         // the first and the last
	steps          int
	audited        int // number of steps in which a microbatch was computed again
	last           *runner.Result
	far            FarSummary
	replicas       Replicas
	tokens         int64
	begin          time.Time
	seconds        float64
	heap           runtime.MemStats
	mallocs        uint64
	allocations    []uint64 // a ring
	met            fp8.Statistics
}

// Score is a loss on held-out data.
type Score struct {
	Known    bool
	Step     int // steps that the weights had seen
	Loss     float64
	Standard float64 // standard error of Loss; 0 or not finite if unknown
}

// New returns an empty Recorder for a run on the given number of ranks.
func New(ranks int) *Recorder {
	r := &Recorder{
		train: report.NewEnvelope(buckets), heldout: report.NewEnvelope(buckets),
		allocations: make([]uint64, 0, lastMeasures), log: memlog.New(io.Discard),
	}
	for range ranks {
		r.ranks = append(r.ranks, rankRecord{origin: time.Now(), actions: make([]Action, 0, lastActions)})
	}
	return r
}

// Begin configures the run, and logs the owners at the planned peak of its steps.
func (r *Recorder) Begin(cfg Config) {
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
			r.add(&memlog.Record{Schema: 1, PeakOwner: &owner})
		}
	}
}

// Hooks returns the hooks for the runner. They do not allocate unless a step fails.
func (r *Recorder) Hooks() runner.Hooks {
	return runner.Hooks{Action: r.action, Microbatch: r.microbatch, Peak: r.peak, Failed: r.dump}
}

func (r *Recorder) action(rank int, action schedule.Action) {
	if r.training {
		r.ranks[rank].action(action)
	}
}

func (r *Recorder) microbatch(sample *memory.Sample) {
	if !r.training {
		return
	}
	r.ranks[sample.Rank].stop() // the call has returned: after a step's last action, no other action follows for a while
	r.add(&memlog.Record{Schema: 1, Sample: *sample})
	r.log.Sample(sample)
}

// add adds a record to the memory log of the page. The page shows only the first memreport.MaxRanks ranks.
func (r *Recorder) add(record *memlog.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.memory.Add(record)
}

// peak logs the owners at the peak of a training step whose memory is not planned.
func (r *Recorder) peak(_ int, owners iter.Seq[memory.PeakOwner]) {
	if !r.training {
		return
	}
	for owner := range owners {
		r.add(&memlog.Record{Schema: 1, PeakOwner: &owner})
		r.log.PeakOwner(&owner)
	}
}

// Step runs a training step, and counts its allocations on the Go heap. If Costs are set, it also simulates the
// step's plan unless the step before had the same one, and may return the error of the simulation.
func (r *Recorder) Step(step func() (*runner.Result, error)) (*runner.Result, error) {
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
	if r.Costs != nil && result.Plan != r.clocks.plan {
		if r.clocks.simulated, err = simulate.Run(result.Plan, r.Costs, r.Capacity); err != nil {
			return nil, err
		}
		r.clocks.plan = result.Plan
	}
	return result, nil
}

// Fail makes the page report that the run failed, and why. An interrupted run has not failed.
// Step calls it; a trainer calls it for failures outside of steps.
func (r *Recorder) Fail(err error) {
	if !errors.Is(err, context.Canceled) {
		r.failure = err
	}
}

// AddPeaks takes the peaks of a step or an evaluation into account.
func (r *Recorder) AddPeaks(result *runner.Result) {
	for i := range result.Ranks {
		if of := &result.Ranks[i]; of.Peak > r.ranks[i].peak.Total() {
			r.ranks[i].peak = of.PeakClasses
		}
	}
}

// FinishStep completes the step that Step ran, after the weights have been updated. step is the
// number of steps that the weights have been trained for; loss is the loss before the update,
// over the given number of tokens. It returns how long the step took, including the update.
func (r *Recorder) FinishStep(step int, result *runner.Result, loss float64, tokens int64) time.Duration {
	took := time.Since(r.begin)
	if r.steps == 0 {
		r.losses[0] = loss
	}
	r.losses[1] = loss
	r.train.Add(float64(step-1), loss)
	r.last = result
	r.far.PeakBytes, r.far.Waits = max(r.far.PeakBytes, result.FarPeak), r.far.Waits+result.FarWaits
	for _, rank := range result.Ranks {
		r.replicas.ReduceSeconds += rank.Reduce.Seconds()
		r.replicas.GatherSeconds += rank.Gather.Seconds()
		r.replicas.WaitSeconds += rank.ReplicaWait.Seconds()
	}
	if result.Audited >= 0 {
		r.audited++
	}
	r.clocks.add(result)
	r.tokens += tokens
	r.seconds += took.Seconds()
	if r.steps == 1 {
		r.allocations = r.allocations[:0] // the first step includes planning, so it counts only if it is the only one
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
func (r *Recorder) AddScore(s Score) {
	if !r.scores[0].Known {
		r.scores[0] = s
	}
	r.scores[1] = s
	r.heldout.Add(float64(s.Step), s.Loss)
}

// LastScore returns the last evaluation, or the zero Score if there was none.
func (r *Recorder) LastScore() Score { return r.scores[1] }

// FP8 logs a step's low-precision tensors, one line for each role, and adds them to the run's
// totals. It logs nothing for an empty report.
func (r *Recorder) FP8(step int64, met *fp8.Statistics) {
	r.met.Merge(met)
	for role, c := range met.All() {
		one := memlog.FP8{
			Step: step, Role: role.String(), Tensors: c.Tensors, Frozen: c.Frozen,
			NonFinite: c.NonFinite, Saturated: c.Saturated, Underflowed: c.Underflowed,
			LeastScale: float64(c.Least), GreatestScale: float64(c.Greatest),
		}
		r.add(&memlog.Record{Schema: 1, FP8: &one})
		r.log.FP8(&one)
	}
}

// Growth returns the largest growth in a microbatch, in bytes.
func (r *Recorder) Growth() (most int64) {
	for i := range r.ranks {
		growth, _ := r.memory.Growth(i)
		most = max(most, growth)
	}
	return most
}

// TokensPerSecond returns the mean number of tokens per second over the steps, or 0 before the first one.
func (r *Recorder) TokensPerSecond() float64 {
	if r.seconds == 0 {
		return 0
	}
	return float64(r.tokens) / r.seconds
}

// allocationsPerStep returns the median number of allocations per step over the last steps.
func (r *Recorder) allocationsPerStep() uint64 {
	if len(r.allocations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.allocations))
	return sorted[len(sorted)/2]
}

// fullest returns the rank whose peak was highest.
func (r *Recorder) fullest() (fullest int) {
	for i := range r.ranks {
		if r.ranks[i].peak.Total() > r.ranks[fullest].peak.Total() {
			fullest = i
		}
	}
	return fullest
}
