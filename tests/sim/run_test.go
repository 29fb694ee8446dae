package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/internal/engine/turns"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/schedule/waitgraph"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// T is the handle of the simulation.
type T = kernels.Buffer

// place is the point at which an event happens.
type place int

const (
	atHook place = iota // also at the end of a successful step
	atCall
	atAlloc
	atCopy
	atSource
	atGradient
	atOutputs
	atPeak
	atGet // of memory of another replica
)

var (
	errPlanted   = errors.New("a planted error")
	errCancelled = errors.New("a planted cancellation")
	errFlip      = errors.New("a planted flip of a bit in flight")
)

// stall is the timeout of the stall detection.
const stall = time.Minute

// world is a running scenario.
type world struct {
	Scenario
	clerk     *clerk
	placement schedule.Placement
	devs      []*device          // of the ranks of all replicas
	uses      [][]use            // of parameters, by stage of all replicas
	wanted    [][][]float32      // the weights of parameters, by stage and use
	aborted   []bool             // by rank: its Abort has returned in this step
	counts    []int              // of gradients, by stage of the model and microbatch
	updating  bool               // no rank runs a step
	model     *transformer.Model // nil for toys
	number    int64              // of the next step that counts
	links     *local.Links[T]    // if the runners are apart
	runners   []*runner.Runner[T]
	source    []runner.Source[T] // by runner
	dry       bool               // during a dry run of the stages
	nulls     []*kernels.Null    // of the dry run
	profile   *layout.Profile    // if memory is planned
	sides     []*farSide         // by rank, if saved state is offloaded
	failures  int                // the number of steps in a row that have failed

	// State of the current step.
	step, m   int
	order     [][]int // of the microbatches, by replica; nil is the runner's
	audit     audit
	training  bool
	events    int
	before    int // events of the last step that had no fault
	fired     []kind
	late      bool // a fault after the exchange of its rank
	outputs   []output
	unseen    bool // a rank hung while all others may be waiting for a stream; stalls in this state are not detected
	cancels   []context.CancelCauseFunc
	farFired  atomic.Bool  // the planted fault of far memory has happened
	found     error        // the first violation
	faulted   time.Time    // when the last fault has happened, or the step has begun
	hanging   int          // number of ranks that hang
	failed    bool         // on a rank
	closed    bool         // an exchange has succeeded
	over      atomic.Bool  // on all ranks
	preparing bool         // Prepare runs beside the step
	inRule    func()       // called by the rule in Prepare
	watched   []watched    // by rank
	flight    map[link]int // number of messages sent, and not yet received

	tally *tally
}

// output is one output of an evaluation.
type output struct {
	rank, index int
	h           T
}

// tally counts the events of runs.
type tally struct {
	Runs, Refused, Steps, Failed, Microbatches, Turns, Events int64
	Replicated                                                int64 // microbatches of several replicas
	Offloaded, Far                                            int64 // steps that offloaded, and faults of far memory
	Fired                                                     [numKinds]int64
	Marks                                                     marks
}

// device is a host whose allocations and operations on gradients are events.
type device struct {
	*kernels.Host
	w *world
}

func (d *device) Alloc(class memory.Class, t kernels.DType, n int) (T, error) {
	if err := d.w.event(atAlloc); err != nil {
		return T{}, fmt.Errorf("%w: %w", memory.ErrOutOfMemory, err)
	}
	return d.Host.Alloc(class, t, n)
}

func (d *device) Add(dst, src T) error {
	return errors.Join(d.w.event(atGradient), d.Host.Add(dst, src))
}

func (d *device) SumSquares(g T) (float64, error) {
	if err := d.w.event(atGradient); err != nil {
		return 0, err
	}
	return d.Host.SumSquares(g)
}

// router implements the gradients of all ranks, for spaces without optional interfaces.
type router struct{ w *world }

func (r router) own() *device                    { return r.w.devs[r.w.clerk.current] }
func (r router) Zero(g T) error                  { return r.own().Zero(g) }
func (r router) Add(dst, src T) error            { return r.own().Add(dst, src) }
func (r router) SumSquares(g T) (float64, error) { return r.own().SumSquares(g) }

// violated records a violation.
func (w *world) violated(format string, args ...any) {
	if w.found == nil {
		w.found = fmt.Errorf(format, args...)
	}
}

// event lets another rank continue, and fails if the scenario has a fault at this event.
func (w *world) event(at place) error {
	if w.dry || w.updating {
		return nil
	}
	w.clerk.pause()
	w.events++
	for i := range w.Faults {
		f := &w.Faults[i]
		if w.due(f, at) {
			return w.fail(at, f)
		}
	}
	return nil
}

// due reports whether a fault happens at the current event.
func (w *world) due(f *Fault, at place) bool {
	switch {
	case f.Step != w.step || f.At < 0 || f.Kind == corrupts || f.Kind == flips && (at != atCopy || !w.Sums):
		return false
	case at == atPeak && w.count() > 1: // if a step counts, every replica must make its update
		return false
	case f.At > 1000:
		return at == atPeak
	}
	return w.events >= w.before*f.At/1000
}

// fail triggers a fault, once.
func (w *world) fail(at place, f *Fault) error {
	what := f.Kind
	if what == returns && (at == atHook || at == atPeak) {
		what = panics
	}
	if what < cancels && at == atGet { // no user code runs there
		what = returns
	}
	f.At = -1
	w.fired = append(w.fired, what)
	w.late = w.late || at == atPeak
	w.faulted = time.Now()
	w.markFault(at, what)
	switch what {
	case returns:
		if at == atSource && f.Step%2 == 0 {
			return io.EOF
		}
		return errPlanted
	case panics:
		panic(errPlanted)
	case exits:
		runtime.Goexit()
	case cancels:
		w.cancels[w.clerk.random.IntN(len(w.cancels))](errCancelled)
	case hangs:
		w.unseen = w.unseen || at == atSource && w.Stream
		w.hanging++
		w.clerk.sleep(3 * stall)
		w.hanging--
	case slow:
		w.clerk.sleep(stall / 8)
	case flips:
		return errFlip
	}
	return nil // corrupts
}

// weight returns the weight of a stage: a small integer, so that every sum is exact and independent
// of its order.
func weight(stage int) float32 { return float32(1 + stage%2) }

// microbatches returns the number of microbatches of a step.
func (w *world) microbatches(step int) int {
	m := w.Microbatches
	if w.Varies {
		m = 1 + (w.Microbatches-1)*step/max(w.Steps, 1)
	}
	return max(m, w.count())
}

// total returns the number of ranks of all replicas.
func (w *world) total() int { return w.Ranks * w.count() }

// size returns the length of the tensors of a microbatch. Planned memory has one shape.
func (w *world) size(index int) int {
	if w.Planned {
		return 2
	}
	return 1 + index%3
}

// input returns the value of every element of the input of a model's stage for a microbatch.
func input(stage, index int) float32 {
	x := float32(1 + index%3)
	for s := range stage {
		x *= weight(s)
	}
	return x
}

// gradient returns the value of the gradient of a stage's output: the product of the subsequent
// weights.
func gradient(stage, depth int) float32 {
	dy := float32(1)
	for s := stage + 1; s < depth; s++ {
		dy *= weight(s)
	}
	return dy
}

// fill allocates a tensor of a microbatch.
func (w *world) fill(dev kernels.Compute, class memory.Class, index int, x float32) (T, error) {
	b, err := dev.Alloc(class, kernels.Float32, w.size(index))
	if err != nil {
		return b, err
	}
	return b, dev.WriteFloat32(b, slices.Repeat([]float32{x}, w.size(index)))
}

// read requires that a tensor has its expected contents, and was not overwritten.
func (w *world) read(dev kernels.Device, b T, index int, want float32) error {
	if w.dry {
		return nil
	}
	x := make([]float32, w.size(index))
	if err := dev.ReadFloat32(x, b); err != nil {
		w.violated("a tensor that was lent to a stage cannot be read: %w", err)
		return err
	}
	for _, x := range x {
		if x != want {
			w.violated("rank %d reads %v where %v was written", w.clerk.current, x, want)
		}
	}
	return nil
}

// simulated is a stage of the plan on a device. It requires that every tensor has its expected
// contents. Stages 0 and depth-1 of the model share a parameter.
type simulated struct {
	stages.Decl[T]
	w                         *world
	dev                       kernels.Compute
	number, k, depth          int // number of the stage in the plan and in the model, and stages of the model
	first, last               bool
	uses                      []use
	params                    []batchctx.Param
	part                      batchctx.Part
	objective                 batchctx.Loss
	x, carry                  batchctx.Slot
	forwardCopy, backwardCopy batchctx.Copy
}

// whole is a stage that does not split its backward.
type whole struct{ stages.Stage[T] }

func (w whole) Unwrap() stages.Stage[T] { return w.Stage }

// stage returns a stage of the plan, decorated according to the scenario.
func (w *world) stage(dev kernels.Compute, number int, uses []use) stages.Stage[T] {
	p := w.placement
	s := &simulated{
		w: w, dev: dev, number: number, k: number % p.Depth(), depth: p.Depth(), first: p.First(number), last: p.Last(number), uses: uses,
	}
	s.Name = fmt.Sprint("stage", number)
	s.x, s.carry = s.Slot("x"), s.Slot("carry")
	for _, u := range uses {
		s.params = append(s.params, s.Use(batchctx.Use[T]{Name: u.name, Grad: u.grad, Weight: u.weight, Elements: u.n, Tied: u.name == "shared"}))
	}
	if s.first {
		s.part = s.Part("x")
	} else {
		s.Inputs("x", "y")
	}
	if s.last {
		s.objective = s.Loss("loss")
	} else {
		s.Outputs("x", "y")
	}
	if s.last && w.Outputs {
		s.Outputs("out")
	}
	if w.Copies {
		s.forwardCopy = s.WeightCopy("forward", batchctx.AtForward)
		s.backwardCopy = s.WeightCopy("backward", batchctx.AtBackward)
	}
	s.NoGrad("y") // every stage returns it unchanged
	var made stages.Stage[T] = s
	if w.Whole {
		made = whole{s}
	}
	if w.Recompute {
		made = stages.Recompute(made)
	}
	if w.frozen(s.k) {
		made = stages.Freeze(made)
	}
	return made
}

func (s *simulated) Forward(_ context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	if err := s.w.event(atCall); err != nil {
		return err
	}
	index := mb.Index()
	s.readWeights(mb, s.forwardCopy, weight(s.k))
	var h, y T
	if s.first {
		h = mb.Part(s.part)
		y = h
	} else {
		h, y = in[0], in[1]
	}
	s.read(mb, y, index, input(0, index))
	s.read(mb, h, index, input(s.k, index))
	mb.Save(s.x, mb.Retain(h))
	if s.last {
		mb.Loss(s.objective, float64(input(s.depth, index)), 1)
	}
	if len(out) > 0 {
		out[0] = s.fill(mb, memory.Activation, input(s.k+1, index))
		if !s.last {
			out[1] = mb.Retain(y)
		}
	}
	return s.w.event(atCall)
}

func (s *simulated) Backward(_ context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	h, err := s.backward(mb, gradOut, gradIn)
	if err == nil {
		s.contribute(mb, h)
	}
	return err
}

func (s *simulated) BackwardInput(_ context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	h, err := s.backward(mb, gradOut, gradIn)
	if err == nil {
		mb.SaveFor(batchctx.ByWeight, s.carry, mb.Retain(h))
	}
	return err
}

func (s *simulated) BackwardWeight(_ context.Context, mb batchctx.Microbatch[T]) error {
	if err := s.w.event(atCall); err != nil {
		return err
	}
	s.contribute(mb, mb.Take(s.carry))
	return nil
}

func (s *simulated) QuantizeWeights(_ context.Context, call batchctx.Quantization[T]) error {
	if err := s.w.event(atCall); err != nil {
		return err
	}
	call.Put(s.forwardCopy, call.Must(s.w.fill(s.dev, memory.FP8, 0, weight(s.k))))
	if call.Wants(s.backwardCopy) {
		call.Put(s.backwardCopy, call.Must(s.w.fill(s.dev, memory.FP8, 0, -weight(s.k))))
	}
	return nil
}

// backward sets gradIn and returns the input that the forward has saved.
func (s *simulated) backward(mb batchctx.Microbatch[T], gradOut, gradIn []T) (T, error) {
	if err := s.w.event(atCall); err != nil {
		return T{}, err
	}
	s.readWeights(mb, s.backwardCopy, -weight(s.k))
	if s.last {
		mb.LossSeed(s.objective)
	} else {
		s.read(mb, gradOut[0], mb.Index(), gradient(s.k, s.depth))
	}
	work := s.fill(mb, memory.Workspace, 0)
	defer mb.Release(work)
	if gradIn != nil {
		gradIn[0] = s.fill(mb, memory.ActGrad, gradient(s.k-1, s.depth))
	}
	return mb.Take(s.x), nil
}

// contribute adds to the gradients of all parameters.
func (s *simulated) contribute(mb batchctx.Microbatch[T], x T) {
	w, index := s.w, mb.Index()
	if !w.dry {
		w.counts[s.k*w.m+index]++
	}
	for i, param := range s.params {
		g, trains := mb.Grad(param)
		if !trains || w.dry {
			continue
		}
		sum := make([]float32, s.uses[i].n)
		mb.Check(s.dev.ReadFloat32(sum, g))
		for j := range sum {
			sum[j] += float32(1+j) * input(s.k, index) * gradient(s.k, s.depth)
		}
		if w.corrupted(w.clerk.current, s.number, index) {
			sum[0] = math.Nextafter32(sum[0], 0)
		}
		mb.Check(s.dev.WriteFloat32(g, sum))
	}
	s.read(mb, x, index, input(s.k, index))
}

// fill and read call the world's methods in a call of the stage, and end the call if they fail.
func (s *simulated) fill(mb batchctx.Microbatch[T], class memory.Class, x float32) T {
	return mb.Must(s.w.fill(s.dev, class, mb.Index(), x))
}

func (s *simulated) read(mb batchctx.Microbatch[T], b T, index int, want float32) {
	mb.Check(s.w.read(s.dev, b, index, want))
}

func (s *simulated) readWeights(mb batchctx.Microbatch[T], k batchctx.Copy, want float32) {
	mb.Check(s.w.readWeights(s.dev, mb, s.number, s.params))
	if s.w.Copies {
		s.read(mb, mb.WeightCopy(k), 0, want)
	}
}

// frozen reports whether a stage of the model is frozen. The last one trains.
func (w *world) frozen(k int) bool { return k < w.placement.Depth()-1 && w.Frozen>>k&1 == 1 }

// take is the sink of outputs. It releases some outputs immediately, and some after the evaluation.
func (w *world) take(index int, out []T) error {
	o := output{w.clerk.current, index, out[0]}
	if index%2 == 1 {
		w.outputs = append(w.outputs, o)
	} else if err := w.end(o); err != nil {
		return err
	}
	return w.event(atOutputs)
}

// end releases an output.
func (w *world) end(o output) error {
	dev := w.devs[o.rank].Host
	err := w.read(dev, o.h, o.index, input(w.placement.Depth(), o.index))
	_, err2 := dev.Release(o.h)
	return errors.Join(err, err2)
}

// put fills an entry.
func (w *world) put(dev kernels.Compute, e batchctx.Entry[T], index int) error {
	if !w.dry {
		if replica := e.Rank() / w.Ranks; (w.order == nil && replica != index%w.count() || w.order != nil && !slices.Contains(w.order[replica], index)) && (index != w.audit.index || replica < w.audit.first) {
			w.violated("rank %d of %d replicas is asked for microbatch %d", e.Rank(), w.count(), index)
		}
	}
	if w.Transformer {
		w.putTokens(dev, e, index)
		return w.event(atSource)
	}
	if !e.Wants("x") {
		return nil
	}
	b, err := w.fill(dev, memory.Entry, index, input(0, index))
	if err != nil {
		return err
	}
	e.Put("x", b)
	return w.event(atSource)
}

// sources returns the source of a runner for the ranks from first on.
func (w *world) sources(devs []kernels.Compute) runner.Source[T] {
	if w.Stream {
		index := 0
		return runner.Stream(func(context.Context) (int, error) {
			index++
			return index, w.event(atSource)
		}, func(_ int, e batchctx.Entry[T]) error { return w.put(devs[e.Rank()%len(devs)], e, e.Index()) })
	}
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
		if err := w.event(atSource); err != nil {
			return err
		}
		return w.put(devs[e.Rank()%len(devs)], e, e.Index())
	})
}

// copy implements Topology.Copy. While it runs the sender may do anything except release the buffer (L4).
func (w *world) copy(from, to int, b T) (T, error) {
	if w.dry {
		return kernels.Transfer(w.nulls[to], w.nulls[from], b)
	}
	w.watched[from].copied++
	defer func() { w.watched[from].copied-- }()
	planted := w.event(atCopy)
	if planted != nil && planted != errFlip {
		return T{}, planted
	}
	made, err := kernels.Transfer(w.devs[to].Host, w.devs[from].Host, b)
	if err == nil {
		w.clerk.pause()
		_, err = w.devs[from].Lend(b)
	}
	if err == nil && planted == errFlip {
		var bits []byte
		if bits, err = w.devs[to].View(made); err == nil {
			bits[0] ^= 1
		}
	}
	if err != nil && !errors.Is(err, memory.ErrOutOfMemory) {
		w.violated("rank %d ended a buffer while rank %d copied it (L4): %w", from, to, err)
	}
	return made, err
}

// randomOrder is a rule that draws one of all valid orders.
func (w *world) randomOrder(p schedule.Params) (*schedule.Plan, error) {
	r := rand.New(rand.NewPCG(w.Seed, 2))
	n, m := p.Placement.Stages(), p.Microbatches
	plan := &schedule.Plan{Name: "random", Mode: p.Mode, Placement: p.Placement, Microbatches: m, Frozen: p.Frozen, Programs: make([][]schedule.Segment, p.Placement.Ranks)}
	body := make([][]schedule.Action, p.Placement.Ranks)
	f, i, b := make([]int, n), make([]int, n), make([]int, n)
	last := schedule.B
	if !w.Whole {
		last = schedule.W
	}
	for {
		var ready []schedule.Action
		for s := range n {
			if f[s] < m && (s == 0 || f[s-1] > f[s]) {
				ready = append(ready, schedule.NewAction(schedule.F, s, f[s]))
			}
			if !plan.HasBackward(s) {
				continue
			}
			if i[s] < f[s] && (s == n-1 || i[s+1] > i[s]) {
				kind := schedule.I
				if w.Whole && !plan.IsFrozen(s) {
					kind = schedule.B
				}
				ready = append(ready, schedule.NewAction(kind, s, i[s]))
			}
			if last == schedule.W && !plan.IsFrozen(s) && b[s] < i[s] {
				ready = append(ready, schedule.NewAction(schedule.W, s, b[s]))
			}
		}
		if len(ready) == 0 {
			break
		}
		a := ready[r.IntN(len(ready))]
		switch a.Kind() {
		case schedule.F:
			f[a.Stage()]++
		case schedule.W:
			b[a.Stage()]++
		default:
			i[a.Stage()]++
		}
		rank := p.Placement.Rank[a.Stage()]
		body[rank] = append(body[rank], a)
	}
	for rank, actions := range body {
		if len(actions) > 0 {
			plan.Programs[rank] = []schedule.Segment{{Body: actions, Repeat: 1}}
		}
	}
	return plan, nil
}

// errRefused is returned for a scenario that no runner accepts.
var errRefused = errors.New("refused")

// config returns the configuration of the ranks on devs, from rank first on.
func (w *world) config(devs []kernels.Compute, first int) runner.Config[T] {
	cfg := runner.Config[T]{
		Losses:    []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
		FirstStep: 1,
		Audit:     w.Audits,
		Plan:      runner.Plan{Placement: w.placement, LookAhead: w.LookAhead, Rule: w.randomOrder},
		Topology:  runner.Topology[T]{Capacity: w.Capacity, Copy: w.copy, Stall: stall, Sums: w.Sums && !w.dry},
		Hooks: runner.Hooks{
			Action: func(rank int, action schedule.Action) {
				w.markAction(rank, action)
				_ = w.event(atHook)
			},
			Microbatch: func(*memory.Sample) { _ = w.event(atHook) },
			Failed: func(int, error, iter.Seq[memory.Info]) {
				w.failed = true
				w.clerk.pause()
			},
			Peak: func(int, iter.Seq[memory.PeakOwner]) { _ = w.event(atPeak) },
		},
	}
	if found, err := schedule.Find(w.Schedule); err == nil {
		cfg.Plan.Rule = found.Rule
	}
	rule := cfg.Plan.Rule
	cfg.Plan.Rule = func(p schedule.Params) (*schedule.Plan, error) {
		if w.preparing {
			w.inRule()
		}
		return rule(p)
	}
	for _, dev := range devs {
		space := dev.(memory.Space[T])
		if w.Bare && !w.dry {
			space, cfg.Gradients = struct{ memory.Space[T] }{space}, router{w}
		}
		cfg.Spaces = append(cfg.Spaces, space)
	}
	if w.count() > 1 {
		cfg.Replicas = runner.Replicas{Count: w.count(), Shard: w.Shard, Gathered: w.Gathered}
	}
	if w.model != nil {
		cfg.Stages = w.model.Stages()
	}
	for n, uses := range w.uses {
		s := n % w.placement.Stages()
		rank := n/w.placement.Stages()*w.Ranks + w.placement.Rank[s]
		dev := devs[max(0, min(rank-first, len(devs)-1))]
		cfg.Stages = append(cfg.Stages, w.stage(dev, s, uses))
	}
	if w.Outputs {
		cfg.Outputs = w.take
	}
	cfg.Memory.Profile = w.profile
	if w.Far && w.Planned {
		cfg.Memory.Offload = runner.Offload{Share: 1, Range: func(rank int) (memory.Range, error) {
			w.sides[rank] = &farSide{Range: offload.Heap(), w: w, rank: rank}
			return w.sides[rank], nil
		}}
	}
	return cfg
}

// farSide is the far memory of a rank. Its lanes take no turns, and yield before each copy. A rank
// that waits for a copy keeps its turn, so turns do not depend on the lanes.
type farSide struct {
	memory.Range
	w                *world
	rank             int
	writes, reads    int
	writing, reading atomic.Bool // a copy runs
}

func (f *farSide) planted(copies int) bool {
	if copies == 0 || f.w.FarFault != copies || copies < 0 && f.rank != -copies%f.w.Ranks || copies > 0 && f.rank != copies%f.w.Ranks {
		return false
	}
	f.w.farFired.Store(true)
	return true
}

func (f *farSide) delay() {
	for range 100 {
		runtime.Gosched()
	}
}

func (f *farSide) WriteAt(p []byte, off int64) (int, error) {
	f.writing.Store(true)
	defer f.writing.Store(false)
	f.delay()
	if f.writes++; f.planted(f.writes) {
		return 0, errPlanted
	}
	return f.Range.WriteAt(p, off)
}

func (f *farSide) ReadAt(p []byte, off int64) (int, error) {
	f.reading.Store(true)
	defer f.reading.Store(false)
	f.delay()
	n, err := f.Range.ReadAt(p, off)
	if f.reads++; f.planted(-f.reads) {
		p[0]++
	}
	return n, err
}

// build makes the runners.
func (w *world) build() error {
	var err error
	w.placement = schedule.Looped(w.Ranks, w.Stages)
	if found, none := schedule.Find(w.Schedule); none == nil {
		for _, n := range []int{w.Stages, w.Ranks, 2 * w.Ranks} { // some schedules determine their number of stages
			if w.placement, err = found.Place(w.Ranks, n); err == nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	w.Planned, w.Sums = w.Planned && !w.Bare, w.Sums && !w.Bare
	uneven := w.Varies || w.Microbatches%w.count() > 0 // in steps without an audit; random plans may then reduce in different orders
	if w.Bare || w.Stream || w.Schedule == "" && w.count() > 1 && uneven {
		w.Audits = 0
	}
	if found, none := schedule.Find(w.Schedule); none == nil && !found.AscendingBackward { // whose bits differ (L9)
		w.Transformer, w.Audits = false, 0
	}
	if w.Transformer {
		w.Outputs, w.Frozen, w.Ordered = false, 0, false // the order changes bits (L9)
	}
	devs := make([]kernels.Compute, w.Ranks)
	if w.Planned {
		for rank := range devs {
			null := kernels.NewNull(w.devs[rank].Host)
			defer null.Close()
			w.nulls, devs[rank] = append(w.nulls, null), null
		}
		w.dry = true
		defer func() { w.dry = false }()
		if err := w.allocUses(devs); err != nil {
			return err
		}
		cfg := w.config(devs, 0)
		if w.profile, err = record.Stages(context.Background(), cfg, record.Shape[T]{Name: "all", Source: w.sources(devs)}); err != nil {
			return err
		}
		w.dry = false
		if w.model != nil {
			if err := w.model.Close(); err != nil {
				return err
			}
		}
	}
	devs = devs[:0]
	for _, d := range w.devs {
		devs = append(devs, d)
	}
	if err := w.allocUses(devs); err != nil {
		return err
	}
	for {
		err := w.runnersOn(devs)
		if err == nil {
			return nil
		}
		if !errors.Is(err, waitgraph.ErrDeadlock) || w.Capacity == schedule.Unlimited {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		w.Capacity = schedule.Unlimited
	}
}

// allocUses allocates the uses of all parameters of the replicas on devs, or makes the transformer.
func (w *world) allocUses(devs []kernels.Compute) error {
	if w.Transformer {
		dry := w.dry
		w.dry = true // nothing fails here
		defer func() { w.dry = dry }()
		var err error
		w.model, err = w.newModel(devs)
		return err
	}
	w.uses, w.wanted = nil, nil
	for replica := range len(devs) / w.Ranks {
		for s, rank := range w.placement.Rank {
			uses, err := w.usesOf(devs[replica*w.Ranks+rank], replica, s)
			if w.uses = append(w.uses, uses); err != nil {
				return err
			}
		}
	}
	return nil
}

// runnersOn makes one runner, or one for each rank, and prepares the plans of all steps.
func (w *world) runnersOn(devs []kernels.Compute) error {
	if err := w.close(); err != nil {
		return err
	}
	if w.Apart = w.Apart && w.total() > 1; !w.Apart && w.count() == 1 {
		return w.add(w.config(devs, 0), devs)
	}
	cfg := local.Config[T]{Ranks: w.total(), Capacity: w.Capacity, Copy: w.copy, Stall: stall}
	if w.Sums {
		cfg.Sum = func(rank int, h T) (uint32, error) { return transport.SumOf(w.devs[rank].Host, h) }
	}
	links, err := local.New(cfg)
	if err != nil {
		return err
	}
	w.links = links
	together := 1
	if !w.Apart {
		together = w.total()
	}
	for rank := 0; rank < w.total(); rank += together {
		own := devs[rank : rank+together]
		cfg := w.config(own, rank)
		cfg.Topology = runner.Topology[T]{Ranks: w.Ranks, First: rank, Transport: func(rank int) transport.Transport[T] { return &station{links.Rank(rank), w, rank} }}
		if err := w.add(cfg, own); err != nil {
			return err
		}
	}
	return nil
}

// close closes the runners.
func (w *world) close() (err error) {
	for _, r := range w.runners {
		err = errors.Join(err, r.Close())
	}
	w.runners, w.source = nil, nil
	return err
}

func (w *world) add(cfg runner.Config[T], devs []kernels.Compute) error {
	r, err := runner.New(cfg)
	if err != nil {
		return err
	}
	w.runners, w.source = append(w.runners, r), append(w.source, w.sources(devs))
	for step := w.Steps; err == nil && step >= 0 && (w.Varies || step == w.Steps); step-- {
		_, err = r.Prepare(context.Background(), w.microbatches(step), nil)
	}
	return err
}

// station is a rank's end of the links. It lets other ranks continue before an Abort or a Get,
// and before and after an Exchange.
type station struct {
	*local.Endpoint[T]
	w    *world
	rank int
}

func (s *station) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	own := &s.w.watched[s.rank]
	s.w.clerk.pause()
	own.exchanging = true
	all, err := s.Endpoint.Exchange(ctx, mine)
	own.exchanging, s.w.closed = false, s.w.closed || err == nil
	s.w.clerk.pause()
	return all, err
}

func (s *station) Abort(cause error) {
	s.w.watched[s.rank].aborting = true
	s.w.clerk.pause()
	s.w.markAbort(s.rank)
	s.Endpoint.Abort(cause)
	s.w.aborted[s.rank] = true
}

func (s *station) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	if s.w.updating {
		return s.Endpoint.Get(ctx, from, tag, offset, dst)
	}
	if err := s.w.event(atGet); err != nil {
		s.w.markRead(s.rank, tag.Content, err, failsInReduction, failsInGather)
		return err
	}
	s.w.watched[from].read++
	err := s.Endpoint.Get(ctx, from, tag, offset, dst)
	s.w.watched[from].read--
	s.w.markRead(s.rank, tag.Content, err, lostInReduction, lostInGather)
	if err == nil && s.w.aborted[from] {
		s.w.violated("rank %d has read %v from rank %d, whose Abort has returned", s.rank, tag, from)
	}
	return err
}

// ending is the result of a runner's step.
type ending struct {
	result   *runner.Result
	err      error
	undone   error // the error of a call after the step
	returned bool
	panicked any
}

// run runs a step of every runner, and returns the result of each.
func (w *world) run() ([]ending, error) {
	m := w.microbatches(w.step)
	w.before = w.before * m / max(w.m, 1)
	w.m, w.events, w.fired, w.late, w.unseen = m, 0, nil, false, false
	w.hanging, w.failed, w.closed, w.faulted, w.flight = 0, false, false, time.Now(), map[link]int{}
	w.watched = make([]watched, w.total())
	w.aborted, w.counts = make([]bool, w.total()), make([]int, w.placement.Depth()*m)
	w.order = w.drawOrder()
	w.training = w.Evaluations>>w.step&1 == 0
	w.audit = w.audited()
	endings := make([]ending, len(w.runners))
	w.cancels = nil
	var contexts []context.Context
	for range w.runners {
		ctx, cancel := context.WithCancelCause(turns.With(context.Background(), w.clerk))
		contexts, w.cancels = append(contexts, ctx), append(w.cancels, cancel)
		defer cancel(nil)
	}
	done, left, prepared := make(chan struct{}), make(chan int, len(w.runners)), make(chan struct{}, 1)
	if w.over.Store(false); w.Prepares {
		r := rand.New(rand.NewPCG(w.Seed, 200+uint64(w.step)))
		w.clerk.Go(func() {
			w.prepare(r)
			prepared <- struct{}{}
		})
	} else {
		prepared <- struct{}{}
	}
	for i, r := range w.runners {
		go func() {
			e := &endings[i]
			defer func() {
				e.panicked = recover()
				left <- i
			}()
			if w.total() == 1 {
				w.clerk.Begin(0)
			}
			source := w.source[i]
			if w.order != nil {
				source = runner.InOrder(source, w.order)
			}
			if w.training {
				e.result, e.err = r.Step(contexts[i], w.m, source)
			} else {
				e.result, e.err = r.Evaluate(contexts[i], w.m, source)
			}
			e.returned = true
		}()
	}
	go func() {
		for range w.runners {
			<-left
		}
		w.over.Store(true)
		<-prepared
		close(done)
	}()
	err := w.clerk.serve(done)
	if took, most := time.Since(w.faulted), 4*stall+time.Duration(w.events)*time.Millisecond; err == nil && took > most {
		err = fmt.Errorf("the step has ended %v after its last fault (%v), not within %v (L8)", took, w.fired, most)
	}
	if w.farFired.Swap(false) {
		w.mark(farFails, len(w.fired) > 0)
		w.fired = append(w.fired, returns)
		w.tally.Far++
	}
	return endings, err
}

// wrong returns the violation of a step with these results.
func (w *world) wrong(endings []ending) error {
	well := 0
	for i := range endings {
		e := &endings[i]
		if e.returned && e.err == nil {
			well++
			if err := w.wrongResult(e.result); err != nil {
				return err
			}
		} else if err := w.wrongError(e); err != nil {
			return err
		}
	}
	w.markEnd(endings, well)
	if w.training && (well > 0 || w.late) {
		w.number++
	}
	if well == len(endings) && w.Apart {
		if err := w.exchange(); err != nil {
			return fmt.Errorf("all ranks have done the step, and an exchange ends with %w (L8)", err)
		}
	}
	if well == len(endings) && w.training && w.count() > 1 {
		if err := w.update(endings); err != nil {
			return fmt.Errorf("an update: %w", err)
		}
	}
	if well > 0 && well < len(endings) && !w.late {
		return fmt.Errorf("the step counts on %d of %d ranks (L8)", well, len(endings))
	}
	if well == len(endings) {
		for _, f := range w.fired {
			if (f < cancels || f == flips || f == corrupts || f == hangs && !w.unseen && w.total() > 1 && len(w.fired) == 1) && !w.late { // the others wait
				return fmt.Errorf("the step has succeeded in spite of its faults: %v", w.fired)
			}
		}
		if len(w.fired) == 0 {
			w.before = w.events
		}
	}
	for _, o := range w.outputs {
		if well < len(endings) {
			_, _ = w.devs[o.rank].Release(o.h) // a space that reclaims has already released it
		} else if err := w.end(o); err != nil {
			return fmt.Errorf("an output of an evaluation: %w", err)
		}
	}
	w.outputs = w.outputs[:0]
	for rank, d := range w.devs {
		var stats memory.Stats
		d.Stats(&stats)
		for class, bytes := range stats.Classes {
			if memory.Class(class) != memory.Resident && bytes != 0 {
				return fmt.Errorf("rank %d holds %d bytes of class %v after the step (L8)", rank, bytes, memory.Class(class))
			}
		}
	}
	return nil
}

// exchange makes all ranks exchange once more in the finished step, under contexts that have ended.
func (w *world) exchange() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCancelled)
	errs, done := make([]error, w.total()), make(chan struct{})
	var all sync.WaitGroup
	for rank := range errs {
		all.Go(func() {
			w.clerk.Begin(rank)
			_, errs[rank] = w.links.Rank(rank).Exchange(ctx, nil)
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	return cmp.Or(w.clerk.serve(done), errors.Join(errs...))
}

// wrongError returns a violation unless the error of a failed step describes one of its faults.
func (w *world) wrongError(e *ending) error {
	reported := e.err
	if err, ok := e.panicked.(error); ok {
		reported = err
	}
	for _, f := range w.fired {
		switch f {
		case returns, panics:
			if errors.Is(reported, errPlanted) || errors.Is(reported, runner.ErrShortBatch) || errors.Is(reported, offload.ErrChecksum) {
				return nil
			}
		case exits:
			if !e.returned && e.panicked == nil {
				return nil
			}
		case cancels:
			if errors.Is(reported, errCancelled) {
				return nil
			}
		case flips:
			if errors.Is(reported, transport.ErrSum) {
				return nil
			}
		case corrupts:
			if len(w.fired) == 1 && e.panicked == nil {
				return w.namesCorruption(e.err)
			}
			if errors.Is(reported, runner.ErrCorrupt) {
				return w.namesCorruption(reported)
			}
		case hangs:
			if _, ok := errors.AsType[*transport.StallError](reported); ok {
				return nil
			}
		}
		if w.Apart && reported != nil && f != slow { // the transport reports a rank that has left
			if _, ok := errors.AsType[*transport.StepError](reported); ok {
				return nil
			}
		}
	}
	return fmt.Errorf("the step has ended with %v (%v), after %v", reported, e.panicked, w.fired)
}

// wrongResult returns the violation in a result, or in gradients.
func (w *world) wrongResult(r *runner.Result) error {
	depth := w.placement.Depth()
	total, sums := 0.0, map[string]float32{}
	names := make([]string, depth)
	for k := range names {
		names[k] = fmt.Sprint("w", k)
	}
	for index := range w.m {
		total += float64(input(depth, index))
		for k := range depth {
			if w.frozen(k) {
				continue
			}
			g := input(k, index) * gradient(k, depth)
			sums[names[k]] += g
			if k == 0 {
				sums["shared"] += g
			}
			if k == depth-1 {
				sums["shared"] += g * float32(min(k, 1)) // a model of one stage has one use
			}
		}
	}
	if w.model != nil {
		if err := w.wrongModel(r); err != nil {
			return err
		}
	} else if got := r.Losses[0].Value; got != total/float64(w.m) {
		return fmt.Errorf("the loss is %v, not %v (L9)", got, total/float64(w.m))
	}
	if r.Excess != 0 || r.Growth.Bytes != 0 {
		return fmt.Errorf("excess %d, growth %d (L6, L7)", r.Excess, r.Growth.Bytes)
	}
	if r.FarPeak > 0 {
		w.tally.Offloaded++
	}
	for rank, of := range r.Ranks {
		if w.Planned && (w.training || !w.Outputs) && (!of.Planned || of.Peak != of.PeakPlanned) {
			return fmt.Errorf("rank %d has the peak %d, planned %d (%v) (L6)", rank, of.Peak, of.PeakPlanned, of.Planned)
		}
	}
	if !w.training || w.model != nil {
		return nil
	}
	var squares float64
	for name, g := range sums {
		for j := range w.elements(name) {
			squares += float64(g) * float64(g) * float64((1+j)*(1+j))
		}
	}
	if norm := math.Sqrt(squares) * (1 / float64(w.m)); r.GradNorm != norm {
		return fmt.Errorf("the norm of the gradient is %v, not %v (L9)", r.GradNorm, norm)
	}
	for i, n := range w.counts {
		want := 1
		if i%w.m == w.audit.index {
			want += w.count() - w.audit.first
		}
		if k := i / w.m; n != want && !w.frozen(k) {
			return fmt.Errorf("stage %d has computed %d gradients for microbatch %d, not %d", k, n, i%w.m, want)
		}
	}
	for n, uses := range w.uses {
		s := n % w.placement.Stages()
		for i := range uses {
			u := &uses[i]
			if w.frozen(s%depth) || w.Ranks == 1 && (i > 0 || s >= depth) {
				continue
			}
			x, err := u.owned(w, u.grad, w.Shard >= 2)
			if err != nil {
				return err
			}
			for j := range x {
				if want := float32(1+u.from(w)+j) * sums[u.name]; x[j] != want {
					return fmt.Errorf("stage %d has the gradient %v for element %d of %q, not %v (L9)", n, x[j], u.from(w)+j, u.name, want)
				}
			}
		}
	}
	return nil
}

// hosts are the devices of all scenarios, by rank.
var hosts []*kernels.Host

// Run runs a scenario and returns the violation that it shows, and the trace of its turns.
func Run(t *testing.T, s Scenario, sum *tally) (trace uint64, found error) {
	for len(hosts) < s.Ranks*s.count() {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, host)
	}
	defer func() {
		if recover() != nil { // goroutines of the bubble are stuck
			found = errors.Join(found, errStuck)
		}
		if found != nil { // the devices may then be in any state
			hosts = nil
		}
	}()
	goroutines := 0
	if s.count() > 1 {
		goroutines = 2 * s.Ranks * s.count()
	}
	if s.Prepares {
		goroutines++
	}
	synctest.Test(t, func(*testing.T) { trace, found = run(s, sum, goroutines) })
	return trace, found
}

func run(s Scenario, sum *tally, goroutines int) (trace uint64, err error) {
	w := &world{Scenario: s, tally: sum, clerk: newClerk(s.Seed, s.Policy, s.Ranks*s.count(), goroutines), before: 20 * s.Stages * s.count(), m: 1, number: 1}
	w.sides = make([]*farSide, w.total())
	w.Faults = slices.Clone(s.Faults)
	for rank := range w.total() {
		w.devs = append(w.devs, &device{hosts[rank], w})
	}
	defer func() {
		if w.model != nil {
			err = errors.Join(err, w.model.Close())
		}
		for _, uses := range w.uses {
			for i := range uses {
				_, _ = uses[i].dev.Release(uses[i].grad)
				_, _ = uses[i].dev.Release(uses[i].weight)
			}
		}
	}()
	defer func() { sum.Turns += int64(w.clerk.turns) }()
	sum.Runs++
	if err := w.build(); err != nil {
		if errors.Is(err, errRefused) {
			sum.Refused++
			return 0, w.close()
		}
		return 0, err
	}
	for w.step = range s.Steps + 1 { // the last one never has a fault
		endings, err := w.run()
		sum.Steps++
		sum.Events += int64(w.events)
		if err == nil {
			err = w.found
		}
		if err == nil {
			err = w.wrong(endings)
		}
		if err != nil {
			return w.clerk.trace, fmt.Errorf("step %d: %w", w.step, err)
		}
		if endings[0].err != nil || !endings[0].returned {
			sum.Failed++
		}
		sum.Microbatches += int64(w.m)
		if w.count() > 1 {
			sum.Replicated += int64(w.m)
		}
		for _, f := range w.fired {
			sum.Fired[f]++
		}
	}
	return w.clerk.trace, w.close()
}
