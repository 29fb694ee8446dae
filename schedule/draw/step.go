package draw

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

var (
	// ErrTooLong is wrapped by errors about a step with too many actions to show.
	ErrTooLong = errors.New("draw: too many actions")
	// ErrStep is wrapped by errors about a step whose fields do not match.
	ErrStep = errors.New("draw: invalid step")
)

// MaxEvents is the largest number of actions in a step that can be shown.
const MaxEvents = 1 << 20

// Step is a step of training or evaluation: a plan, and the times of its actions.
type Step struct {
	Plan *schedule.Plan
	// Events holds the events of each rank, in the order of its program. Only computations and copies
	// are drawn, and other events may be missing. Both actions of a joined pair have the pair's times.
	Events [][]simulate.TimedAction
	// Peaks holds the largest number of live bytes of each rank. If it is nil, the peaks are the
	// maxima over the events.
	Peaks []int64
	// Microbatch is the size of a microbatch if Events and Peaks count microbatches instead of bytes,
	// as simulate.Costs.Microbatch; 0 if they count bytes.
	Microbatch int64
	// Rows, if it is not nil, describes the rows of a picture that shows something other than ranks, such as buffers:
	// Events then holds the events of each row, whose actions have the stages of the row's rank, and nothing is drawn
	// below a row. Facts is the line below the title.
	Rows  []Row
	Facts string
	// Front holds the progress of each rank in a step that hangs; SVG draws it. It is nil if the step
	// does not hang.
	Front []Front
	Unit  string // unit of time, for messages, such as "ms"; "" means a tick
	Scale int64  // number of the events' time units per Unit; 0 means 1
}

// Row is a row of a picture that is not a rank.
type Row struct {
	Name, Note string
	Rank       int
}

// rowCount returns the number of rows, which are ranks unless Rows is set.
func (s *Step) rowCount() int {
	if s.Rows != nil {
		return len(s.Rows)
	}
	return s.Plan.Placement.Ranks
}

// row returns the name of a row, the note to show below it, and the stages whose colors it uses.
func (s *Step) row(i int) (name, note string, stages []int) {
	if s.Rows != nil {
		return s.Rows[i].Name, s.Rows[i].Note, s.Plan.Placement.On(s.Rows[i].Rank)
	}
	stages = s.Plan.Placement.On(i)
	if i < len(s.Front) && s.Front[i].Name != "" {
		return s.Front[i].Name, stageList(stages), stages
	}
	return fmt.Sprintf("rank %d", i), stageList(stages), stages
}

// Simulate returns the step that simulate.Timeline computes for a plan. It returns the same errors as
// Timeline, and an error that wraps ErrTooLong for a plan of more than MaxEvents actions.
func Simulate(plan *schedule.Plan, costs *simulate.Costs, capacity int) (*Step, error) {
	var actions int64
	for rank := range plan.Programs {
		actions += plan.Actions(rank)
	}
	if actions > MaxEvents {
		return nil, &TooLongError{Actions: actions, Most: MaxEvents}
	}
	s := &Step{Plan: plan, Events: make([][]simulate.TimedAction, len(plan.Programs)), Unit: costs.Unit, Scale: costs.Scale, Microbatch: costs.Microbatch}
	report, err := simulate.Timeline(plan, costs, capacity, func(e simulate.TimedAction) {
		s.Events[e.Rank] = append(s.Events[e.Rank], e)
	})
	if err != nil {
		return nil, err
	}
	for _, rank := range report.Ranks {
		s.Peaks = append(s.Peaks, rank.Peak)
	}
	return s, nil
}

// TooLongError reports a step with too many actions to show. It wraps ErrTooLong.
type TooLongError struct {
	Actions, Most int64
	Page          bool // whether HTML can show the step
}

// Error returns the number of actions, and how many can be shown.
func (e *TooLongError) Error() string {
	text := fmt.Sprintf("%v: %d, and at most %d can be shown: use fewer microbatches", ErrTooLong, e.Actions, e.Most)
	if e.Page {
		text += ", or write a page with HTML"
	}
	return text
}

// Unwrap returns ErrTooLong.
func (e *TooLongError) Unwrap() error { return ErrTooLong }

// check returns the number of computations, or an error if the step cannot be shown.
func (s *Step) check() (computations int64, err error) {
	ranks := s.rowCount()
	if len(s.Events) != ranks || s.Peaks != nil && len(s.Peaks) != ranks {
		return 0, fmt.Errorf("%w: events of %d ranks and %d peaks for a plan of %d ranks", ErrStep, len(s.Events), len(s.Peaks), ranks)
	}
	if s.Front != nil && len(s.Front) != ranks {
		return 0, fmt.Errorf("%w: a front of %d ranks for a plan of %d", ErrStep, len(s.Front), ranks)
	}
	if p := s.Plan.Placement; p.Copies > 1 && p.Stages()%p.Copies != 0 {
		return 0, fmt.Errorf("%w: %d copies cannot have equal shares of %d stages", ErrStep, p.Copies, p.Stages())
	}
	var events int64
	for rank, list := range s.Events {
		end := int64(math.MinInt64)
		for i, e := range list {
			if e.Action.Stage() >= s.Plan.Placement.Stages() {
				return 0, fmt.Errorf("%w: event %d of rank %d is of stage %d, but the plan has %d stages", ErrStep, i, rank, e.Action.Stage(), s.Plan.Placement.Stages())
			}
			if !occupies(e) {
				continue
			}
			pair := i > 0 && list[i-1].Action.Joined() && e.Start == list[i-1].Start && e.End == list[i-1].End
			if e.End < e.Start || e.Start < end && !pair {
				return 0, fmt.Errorf("%w: event %d of rank %d, %v from %d to %d, begins before an earlier event ends", ErrStep, i, rank, e.Action, e.Start, e.End)
			}
			computations++
			end = e.End
		}
		events += int64(len(list))
	}
	if events > MaxEvents {
		return 0, &TooLongError{Actions: events, Most: MaxEvents}
	}
	return computations, nil
}

// occupies reports whether an action occupies its rank. Computations do, and so does a QUANTIZE that
// takes time.
func occupies(e simulate.TimedAction) bool {
	return e.Action.Kind().Compute() || e.Action.Kind() == schedule.Quantize && e.End > e.Start
}

// box is a computation or a copy as shown in pictures and traces.
type box struct {
	simulate.TimedAction
	half     int     // of a joined pair: 1 is the upper half and 2 the lower half; 0 for other computations
	strength float64 // of the stage's color
}

// boxes iterates over the actions that occupy a rank (see occupies). Computations may take no time.
func (s *Step) boxes(rank int) iter.Seq[box] {
	return func(yield func(box) bool) {
		list := s.Events[rank]
		_, _, stages := s.row(rank)
		strengths := map[int]float64{} // by stage
		for i, stage := range stages {
			strengths[stage] = strength(i, len(stages))
		}
		for i, e := range list {
			b := box{TimedAction: e, strength: strengths[e.Action.Stage()]}
			switch {
			case e.Action.Joined():
				b.half = 1
			case i > 0 && list[i-1].Action.Joined():
				b.half = 2
			}
			if occupies(e) && !yield(b) {
				return
			}
		}
	}
}

// lanes lists the kinds of copies that pictures show. Two lanes share a row of a picture.
var lanes = [...]struct {
	kind        schedule.Kind
	name, trace string // the lane's name in a page, and in a trace
}{
	{schedule.Offload, "to far", "to far memory"},
	{schedule.Reload, "back", "from far memory"},
	{schedule.ReduceGrad, "reduce", "gradients between replicas"},
	{schedule.Unshard, "gather", "weights between replicas"},
}

// copies returns a rank's copies in one lane, as upper or lower halves. It leaves out copies that take no
// time.
func (s *Step) copies(rank, lane int) (boxes []box) {
	for _, e := range s.Events[rank] {
		if e.Action.Kind() == lanes[lane].kind && e.Copied.End > e.Copied.Start {
			e.Start, e.End = e.Copied.Start, e.Copied.End
			boxes = append(boxes, box{TimedAction: e, strength: 1, half: 1 + lane%2})
		}
	}
	return boxes
}

// rows returns the first lane of each row with copies that take time on some rank.
func (s *Step) rows() (rows []int) {
	for lane := 0; lane < len(lanes); lane += 2 {
		if slices.ContainsFunc(s.Events, func(list []simulate.TimedAction) bool {
			return slices.ContainsFunc(list, func(e simulate.TimedAction) bool {
				return e.Copied.End > e.Copied.Start && (e.Action.Kind() == lanes[lane].kind || e.Action.Kind() == lanes[lane+1].kind)
			})
		}) {
			rows = append(rows, lane)
		}
	}
	return rows
}

// clocks holds the times of a step.
type clocks struct {
	first, last int64 // start of the first computation and end of the last one
	begin, end  int64 // the same, including all copies
	span        int64 // the longest time from first start to last end on one rank
	ideal       int64 // the work of the busiest rank
}

// makespan returns the time from the first start to the last end.
func (c clocks) makespan() int64 { return c.last - c.first }

// length returns the time that a picture shows.
func (c clocks) length() int64 { return c.end - c.begin }

// clocks computes the times from the computations of the step. A joined pair counts once.
func (s *Step) clocks() clocks {
	c := clocks{first: math.MaxInt64, last: math.MinInt64}
	for rank := range s.Events {
		first, last, work := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
		for b := range s.boxes(rank) {
			first, last = min(first, b.Start), max(last, b.End)
			if b.half != 2 {
				work += b.End - b.Start
			}
		}
		if first <= last {
			c.first, c.last = min(c.first, first), max(c.last, last)
			c.span, c.ideal = max(c.span, last-first), max(c.ideal, work)
		}
	}
	if c.first > c.last { // there are no computations
		c.first, c.last = 0, 0
	}
	c.begin, c.end = c.first, c.last
	for rank := range s.Events {
		for lane := range lanes {
			for _, b := range s.copies(rank, lane) {
				c.begin, c.end = min(c.begin, b.Start), max(c.end, b.End)
			}
		}
	}
	return c
}

// bubble returns the share of a time, makespan or span, in which the busiest rank is idle.
func (c clocks) bubble(clock int64) float64 {
	if clock == 0 {
		return 0
	}
	return 1 - float64(c.ideal)/float64(clock)
}
