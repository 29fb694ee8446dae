package timing

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/cmd/weir/internal/traces"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Request is the input of Analyze.
type Request struct {
	Traces []*traces.Trace // of all ranks, by rank
	// Plan is the plan of the run. If it is nil, Analyze simulates the actions in the order in
	// which they ran.
	Plan *schedule.Plan
	// Costs supplies the bytes of the stages, which traces do not contain. It may be nil.
	Costs *simulate.Costs
	// RanksPerHost is the number of consecutive ranks that share a clock. If it is 0, the host
	// names in the traces decide, and all traces without a host name share a clock.
	RanksPerHost int
	Pipeline     int // the index of the pipeline, from 0, if the traces contain several parallel pipelines
}

// Report compares the measured times of a run with the simulated times of its plan. Times are in
// nanoseconds.
type Report struct {
	Ranks        int     `json:"ranks"`
	Stages       int     `json:"stages"`
	Microbatches int     `json:"microbatches"`
	Steps        []int64 `json:"makespans"` // of the steps
	Shown        int     `json:"shown"`     // the index of the step with the median makespan, which Measured and PerRank describe
	Measured     Times   `json:"measured"`
	Simulated    *Times  `json:"simulated,omitempty"` // nil if the plan cannot be simulated; see Refused
	Refused      string  `json:"refused,omitempty"`
	// Departures lists the first action of each rank that differs from the plan.
	Departures []Departure  `json:"departs,omitempty"`
	PerRank    []RankReport `json:"per_rank"`
	Costs      []Cost       `json:"costs"`
	Links      []Link       `json:"links"`
	Clocks     []Clock      `json:"clocks"`
	// Absent lists the ranks of the job without a trace. They are assumed to be in other pipelines.
	Absent    []int      `json:"absent,omitempty"`
	Straggler *Straggler `json:"straggler,omitempty"`
	Halved    bool       `json:"halved,omitempty"` // I and W were not measured; each is assumed to be half of B

	// Model holds the costs of the simulation: medians that include the gaps of the rank.
	Model *simulate.Costs `json:"-"`
	Plan  *schedule.Plan  `json:"-"` // the simulated plan
	// Run is the step Shown, for drawing.
	Run *draw.Step `json:"-"`
}

// Times holds the times of a step.
type Times struct {
	Makespan int64   `json:"makespan"`
	Ideal    int64   `json:"ideal"` // the work of the busiest rank
	Bubble   float64 `json:"bubble"`
}

// RankReport describes a rank of the pipeline in the step Shown.
type RankReport struct {
	Global int    `json:"global"` // the rank in the job
	File   string `json:"file"`
	RankTimes
	Gap       int64      `json:"gap"` // the median time before an action that could have begun
	Simulated *RankTimes `json:"simulated,omitempty"`
}

// RankTimes holds the times of a rank in a step.
type RankTimes struct {
	Busy int64 `json:"busy"`
	Wait int64 `json:"wait"` // the remaining time between the first start and the last end
	Wire int64 `json:"wire"` // the part of Wait during which the message was copied
}

// Cost holds the times of a kind of computation of a stage, over all steps.
type Cost struct {
	Stage  int    `json:"stage"`
	Kind   string `json:"kind"`
	Rank   int    `json:"rank"`
	Count  int    `json:"count"`
	Median int64  `json:"median"`
	Low    int64  `json:"low"`  // one in twenty is shorter
	High   int64  `json:"high"` // one in twenty is longer
	Most   int64  `json:"most"`
	// ByMicrobatch holds the median over the steps for each microbatch.
	ByMicrobatch []int64 `json:"by_microbatch"`
}

// Link holds the times of the messages from one rank to another, over all steps.
type Link struct {
	From     int `json:"from"`
	To       int `json:"to"`
	Messages int `json:"messages"`
	// Timed is the number of messages whose receive has a span, or whose receiver was already
	// waiting when the sender was ready.
	Timed int `json:"timed"`
	// Copying is the median time of a timed message, or -1 if there is none.
	Copying int64 `json:"copying"`
	Copied  int64 `json:"copied"`  // the total time of all timed messages
	Waiting int64 `json:"waiting"` // the time that receivers waited before the send began
	// Occupies is set if the receiver computes nothing while a message is copied.
	Occupies bool `json:"occupies,omitempty"`

	copies []int64 // the times of all timed messages
	least  []int64 // the shortest times that these messages can have taken
	spans  bool    // the receives have spans
}

// Departure is the first action of a rank that differs from the plan.
type Departure struct {
	Rank int             `json:"rank"`
	Ran  schedule.Action `json:"ran"`
	Plan schedule.Action `json:"plan"`
}

// Straggler is the rank or link that delays the step most.
type Straggler struct {
	Rank int   `json:"rank"` // -1 if the straggler is a link
	Link *Link `json:"link,omitempty"`
	// Factor is how many times as long the straggler takes as the median of the other ranks or links: the smaller
	// of the ratios of their fast (5th percentile) and median times.
	Factor float64 `json:"factor"`
	// Makespan is the simulated makespan with the straggler's time divided by Factor.
	Makespan int64 `json:"makespan"`
}

// Analyze compares a run with its plan. Errors about the traces wrap ErrRun.
func Analyze(r Request) (*Report, error) {
	u, err := newRun(&r)
	if err != nil {
		return nil, err
	}
	if err := u.align(r.RanksPerHost); err != nil {
		return nil, err
	}
	m := u.measure()
	out := &Report{
		Ranks: len(u.traces), Stages: u.plan.Placement.Stages(), Microbatches: u.plan.Microbatches,
		Clocks: u.hosts, Absent: u.absent,
	}
	var order []int
	for n := range u.steps {
		out.Steps, order = append(out.Steps, m.makespan(n)), append(order, n)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(out.Steps[a], out.Steps[b]) })
	out.Shown = order[(len(order)-1)/2] // The shorter one of two, since disturbances make steps longer.
	out.ranks(u, m)
	out.costs(u, m)
	out.links(m)
	out.Run = u.steps[out.Shown].drawing(u.plan.Placement)
	model := func(links []Link) *simulate.Costs { return out.model(u, m, r.Costs, links) }
	out.Model = model(out.Links)
	out.Plan = u.plan
	if r.Plan != nil {
		out.Plan = r.Plan
		if r.Plan.Microbatches != u.plan.Microbatches {
			return nil, diagnostic.Errorf(ErrRun, "the plan has %d microbatches, but the traces have %d", r.Plan.Microbatches, u.plan.Microbatches)
		}
		out.departures(u)
	} else if _, err := check.Prove(u.plan, schedule.Unlimited); err != nil {
		out.Refused = "the recorded actions are not a complete step; record one from beginning to end on every rank: " + err.Error()
		return out, nil
	}
	return out, out.simulate(u, m, model)
}

// ranks fills in the measured times of the step Shown.
func (r *Report) ranks(u *measurement, m *measured) {
	r.Measured.Makespan = r.Steps[r.Shown]
	for rank, t := range u.traces {
		times := m.perRank[r.Shown][rank].RankTimes
		r.PerRank = append(r.PerRank, RankReport{Global: t.Rank, File: t.File, RankTimes: times, Gap: m.gap(rank)})
		r.Measured.Ideal = max(r.Measured.Ideal, times.Busy)
	}
	if r.Measured.Makespan > 0 {
		r.Measured.Bubble = 1 - float64(r.Measured.Ideal)/float64(r.Measured.Makespan)
	}
}

// costs fills in the table of costs.
func (r *Report) costs(u *measurement, m *measured) {
	keys := slices.SortedFunc(maps.Keys(m.took), func(a, b stageKind) int { return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.kind, b.kind)) })
	for _, key := range keys {
		all := took(m.took[key])
		byMicrobatch := make([][]int64, r.Microbatches)
		for _, s := range m.took[key] {
			byMicrobatch[s.microbatch] = append(byMicrobatch[s.microbatch], s.took)
		}
		slices.Sort(all)
		m.medians[key] = median(all)
		c := Cost{
			Stage: key.stage, Kind: key.kind.String(), Rank: u.plan.Placement.Rank[key.stage], Count: len(all), Median: m.medians[key],
			Low: all[len(all)/20], High: all[len(all)-1-len(all)/20], Most: all[len(all)-1],
		}
		for _, list := range byMicrobatch {
			c.ByMicrobatch = append(c.ByMicrobatch, median(list))
		}
		r.Costs = append(r.Costs, c)
	}
}

// links fills in the table of links.
func (r *Report) links(m *measured) {
	for _, key := range slices.SortedFunc(maps.Keys(m.links), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		l := m.links[key]
		l.Occupies = l.spans && !m.aside[l.To]
		r.Links = append(r.Links, *l)
	}
}

// model returns the costs for the simulation, with the times of links and the bytes of the given
// costs. If a copy occupies its receiver, its time is part of the action that takes the message.
func (r *Report) model(u *measurement, m *measured, bytes *simulate.Costs, links []Link) *simulate.Costs {
	model := &simulate.Costs{Unit: "ms", Scale: 1e6}
	if bytes != nil {
		model.Resident = bytes.Resident
	}
	depth := u.plan.Placement.Depth()
	receiving := map[[2]int]int64{} // the time for which a message occupies its receiver
	for _, l := range links {
		if l.Occupies {
			receiving[[2]int{l.From, l.To}] = l.Copying
		}
	}
	for stage := range r.Stages {
		s := simulate.StageCosts{}
		if bytes != nil && (len(bytes.Stages) == 1 || stage%depth < len(bytes.Stages)) {
			s = bytes.Stages[min(stage%depth, len(bytes.Stages)-1)]
		}
		rank := u.plan.Placement.Rank[stage]
		cost := func(kind schedule.Kind, before int) int64 {
			time, known := m.medians[stageKind{stage, kind}]
			if known {
				time += r.PerRank[rank].Gap
			}
			if known && before >= 0 && before < r.Stages {
				time += receiving[[2]int{u.plan.Placement.Rank[before], rank}]
			}
			return time
		}
		s.F, s.I, s.W, s.B, s.Joined = cost(schedule.F, stage-1), cost(schedule.I, stage+1), cost(schedule.W, -1), cost(schedule.B, stage+1), 0
		if list := m.joined[stage]; len(list) > 0 {
			s.Joined = median(took(list)) + r.PerRank[rank].Gap
		}
		if s.B > 0 && s.I == 0 && s.W == 0 {
			s.I, s.W, r.Halved = s.B/2, s.B-s.B/2, true
		}
		model.Stages = append(model.Stages, s)
	}
	var all []int64
	for _, l := range links {
		if l.Copying < 0 {
			continue
		}
		latency := max(l.Copying-r.PerRank[l.To].Gap, 0) // The receiver's actions include its gap.
		if l.Occupies {
			latency = 0
		}
		all = append(all, latency)
		model.Links = append(model.Links, simulate.LinkCosts{From: l.From, To: l.To, Latency: latency})
	}
	model.Latency = median(all)
	return model
}

// departures finds the first action of each rank that differs from the plan.
func (r *Report) departures(u *measurement) {
	for rank := range u.plan.Programs {
		ran := u.plan.Programs[rank][0].Body
		i := 0
		for a := range r.Plan.All(rank) {
			if !a.Kind().Compute() {
				continue
			}
			if i == len(ran) {
				break
			}
			if want := schedule.NewAction(a.Kind(), a.Stage(), a.Microbatch()); want != ran[i].WithJoin(false) {
				r.Departures = append(r.Departures, Departure{rank, ran[i].WithJoin(false), want})
				break
			}
			i++
		}
	}
}

// simulate fills in the simulated times, and finds the straggler. If the plan cannot be simulated, it sets Refused.
func (r *Report) simulate(u *measurement, m *measured, model func([]Link) *simulate.Costs) error {
	report, err := simulate.Run(r.Plan, r.Model, r.Plan.Capacity)
	if err != nil {
		r.Refused = err.Error()
		return nil
	}
	r.Simulated = &Times{Makespan: report.Makespan, Ideal: report.Ideal, Bubble: report.BubbleMakespan()}
	for rank := range r.PerRank {
		s := &report.Ranks[rank]
		r.PerRank[rank].Simulated = &RankTimes{s.Busy, s.Wait, s.Communication}
	}
	return r.straggler(report, m.work(u.plan.Placement), model)
}

const (
	maxTried  = 4    // the number of ranks, and of links, that are tried as stragglers
	minSaved  = 0.02 // the minimum saving of a straggler, as a fraction of the makespan
	minFactor = 1.1  // the minimum Factor of a straggler
)

// straggler finds the rank or link whose time, if it were divided by its Factor, would shorten
// the step most. Copies are short and partly estimated, so a link must save more than the
// difference between the simulated and the measured makespan.
func (r *Report) straggler(report *simulate.Report, w *work, model func([]Link) *simulate.Costs) error {
	most := float64(report.Makespan) * (1 - minSaved)
	best := min(most, float64(report.Makespan)-math.Abs(float64(report.Makespan-r.Measured.Makespan)))
	try := func(costs *simulate.Costs, s Straggler) error {
		faster, err := simulate.Run(r.Plan, costs, r.Plan.Capacity)
		if err != nil {
			return fmt.Errorf("timing: %w", err)
		}
		if float64(faster.Makespan) < best {
			best, s.Makespan = float64(faster.Makespan), faster.Makespan
			r.Straggler = &s
		}
		return nil
	}
	var least, copying []typicalTime
	for _, l := range r.Links {
		least, copying = append(least, typicalOf(l.least)), append(copying, typicalOf(l.copies))
	}
	for i, factor := range longest(least, copying) {
		links := slices.Clone(r.Links)
		links[i].Copying = int64(math.Round(float64(links[i].Copying) / factor))
		if err := try(model(links), Straggler{Rank: -1, Link: &r.Links[i], Factor: factor}); err != nil {
			return err
		}
	}
	if r.Straggler == nil {
		best = most
	}
	for rank, factor := range longest(w.typical, w.typical) {
		if !w.usuallyLonger(rank) {
			continue
		}
		costs := *r.Model
		costs.Stages = slices.Clone(costs.Stages)
		for _, stage := range r.Plan.Placement.On(rank) {
			s := &costs.Stages[stage]
			for _, time := range []*int64{&s.F, &s.I, &s.W, &s.B, &s.Joined} {
				*time = int64(float64(*time) / factor)
			}
		}
		if err := try(&costs, Straggler{Rank: rank, Factor: factor}); err != nil {
			return err
		}
	}
	return nil
}

// typicalTime holds the time that only one in twenty undercuts, and the median. Other work on a machine makes
// times longer and never shorter, so a rank or link that is itself slow is slow in both.
type typicalTime [2]int64

const shortest, middle = 0, 1 // the parts of a typicalTime

func typicalOf(times []int64) typicalTime {
	if len(times) == 0 {
		return typicalTime{}
	}
	times = slices.Sorted(slices.Values(times))
	return typicalTime{shortest: times[(len(times)-1)/20], middle: times[(len(times)-1)/2]}
}

// took returns the times of samples.
func took(samples []sample) (times []int64) {
	for _, s := range samples {
		times = append(times, s.took)
	}
	return times
}

// work holds the times that ranks compute. One long action or step hardly changes them.
type work struct {
	typical []typicalTime      // by rank, in all steps, if each of its actions takes its typical time
	single  map[[2]int][]int64 // by rank, for each step and microbatch
}

func (m *measured) work(p schedule.Placement) *work {
	w := &work{make([]typicalTime, p.Ranks), map[[2]int][]int64{}}
	add := func(stage int, samples []sample) {
		rank := p.Rank[stage]
		for part, time := range typicalOf(took(samples)) {
			w.typical[rank][part] += time * int64(len(samples))
		}
		for _, s := range samples {
			key := [2]int{s.step, s.microbatch}
			if w.single[key] == nil {
				w.single[key] = make([]int64, p.Ranks)
			}
			w.single[key][rank] += s.took
		}
	}
	for key, samples := range m.took {
		add(key.stage, samples)
	}
	for stage, samples := range m.joined {
		add(stage, samples)
	}
	return w
}

// usuallyLonger reports whether, for at least three of four microbatches, a rank takes at least minFactor times
// as long as the median of the others.
func (w *work) usuallyLonger(rank int) bool {
	longer := 0
	for _, times := range w.single {
		others := median(slices.Delete(slices.Clone(times), rank, rank+1))
		if float64(times[rank]) >= minFactor*float64(others) {
			longer++
		}
	}
	return 4*longer >= 3*len(w.single)
}

// longest yields the indices of at most maxTried times, those with the longest medians, and their ratios to the
// others' usual times: the smaller of the ratios of the parts shortest and middle, if it is at least minFactor.
func longest(times, usual []typicalTime) iter.Seq2[int, float64] {
	var places []int
	for i := range times {
		places = append(places, i)
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(times[b][middle], times[a][middle]) })
	return func(yield func(int, float64) bool) {
		for _, i := range places[:min(len(places), maxTried)] {
			factor := min(ratio(times, usual, i, shortest), ratio(times, usual, i, middle))
			if factor >= minFactor && !math.IsInf(factor, 1) && !yield(i, factor) {
				return
			}
		}
	}
}

// ratio returns the ratio of a part of times[i] to the median of the others' usual times. It is infinite if the
// median is 0.
func ratio(times, usual []typicalTime, i, part int) float64 {
	var others []int64
	for j := range usual {
		if j != i {
			others = append(others, usual[j][part])
		}
	}
	if of := median(others); of > 0 {
		return float64(times[i][part]) / float64(of)
	}
	return math.Inf(1)
}
