package tracetest

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Steps holds the ranks' computations in several steps.
type Steps struct {
	Plan   *schedule.Plan
	Events [][]simulate.TimedAction // computations by rank, in nanoseconds
}

// Simulate returns consecutive steps of a plan. Costs are in nanoseconds.
func Simulate(plan *schedule.Plan, costs *simulate.Costs, steps int) (*Steps, error) {
	one, err := draw.Simulate(plan, costs, plan.Capacity)
	if err != nil {
		return nil, err
	}
	s := &Steps{plan, make([][]simulate.TimedAction, len(one.Events))}
	length := int64(0)
	for _, events := range one.Events {
		length = max(length, events[len(events)-1].End+1000)
	}
	for n := range int64(steps) {
		for rank, events := range one.Events {
			for _, e := range events {
				if e.Action.Kind().Compute() {
					e.Start, e.End = e.Start+n*length, e.End+n*length
					s.Events[rank] = append(s.Events[rank], e)
				}
			}
		}
	}
	return s, nil
}

// Shift shifts a rank's clock.
func (s *Steps) Shift(rank int, by int64) {
	for i := range s.Events[rank] {
		e := &s.Events[rank][i]
		e.Start, e.End = e.Start+by, e.End+by
	}
}

// WaitInside makes every span begin at the end of the previous one, except the first span of a
// step and the second one of a joined pair, like a host's annotations, which include the waits of
// actions.
func (s *Steps) WaitInside() {
	for _, events := range s.Events {
		steps := map[schedule.Action]bool{}
		for i := range events {
			if a := events[i].Action; i > 0 && !events[i-1].Action.Joined() && a != events[0].Action {
				events[i].Start = events[i-1].End
			}
			steps[events[i].Action] = true
		}
	}
}

// Kineto returns a rank's trace as torch.profiler writes it, with operators between the actions.
// category is user_annotation or gpu_user_annotation.
func (s *Steps) Kineto(rank int, category string) []byte {
	const base = 1790857026000000000
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "nccl", "rank": %d, "world_size": %d}, "traceEvents": [`+"\n", rank, len(s.Events))
	for i, e := range s.Events[rank] {
		fmt.Fprintf(&b, ` {"ph": "X", "cat": %q, "name": "PP:%v", "pid": 27177, "tid": 7, "ts": %s, "dur": %s, "args": {"External id": %d}},`+"\n",
			category, e.Action, micro(e.Start), micro(e.End-e.Start), i)
		fmt.Fprintf(&b, ` {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 27177, "tid": 27177, "ts": %s, "dur": 1, "args": {"Input Dims": [[1, 2], []]}},`+"\n", micro(e.Start))
	}
	fmt.Fprintf(&b, ` {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 0}], "traceName": "x", "displayTimeUnit": "ms", "baseTimeNanoseconds": %d}`, int64(base))
	return b.Bytes()
}

func micro(ns int64) string { return fmt.Sprintf("%d.%03d", ns/1000, ns%1000) }

// OTLP returns the spans of all ranks as the OpenTelemetry collector writes them, one line for
// each rank, with the given number of ranks on each host.
func (s *Steps) OTLP(ranksPerHost int) []byte {
	var b bytes.Buffer
	for rank, events := range s.Events {
		fmt.Fprintf(&b, `{"resourceSpans":[{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"node%d"}},{"key":"dl.rank","value":{"intValue":"%d"}},{"key":"dl.pipeline_parallel.rank","value":{"intValue":"%d"}}]},"scopeSpans":[{"scope":{"name":"nemo.lens"},"spans":[`,
			rank/ranksPerHost, rank, rank)
		for i, e := range events {
			name, attributes := "backward", ""
			if e.Action.Kind() == schedule.F {
				name, attributes = "forward", fmt.Sprintf(`{"key":"megatron.microbatch_id","value":{"intValue":"%d"}}`, e.Action.Microbatch())
			}
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"name":"megatron.microbatch.%s","kind":1,"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[%s]}`, name, 1790857026000000000+e.Start, 1790857026000000000+e.End, attributes)
		}
		b.WriteString("]}]}]}\n")
	}
	return b.Bytes()
}

// Weir returns the trace of all ranks that weir draw --to perfetto writes. Times start at 0.
func (s *Steps) Weir() ([]byte, error) {
	var b bytes.Buffer
	step := draw.Step{Plan: s.Plan, Events: s.Events, Unit: "ns"}
	err := step.Trace(&b)
	return b.Bytes(), err
}

// Slow multiplies a rank's times in the costs of a plan.
func Slow(plan *schedule.Plan, costs *simulate.Costs, rank int, factor float64) {
	costs.Stages = slices.Clone(costs.Stages)
	for _, stage := range plan.Placement.On(rank) {
		c := &costs.Stages[stage]
		for _, time := range []*int64{&c.F, &c.I, &c.W, &c.B} {
			*time = int64(math.Round(float64(*time) * factor))
		}
	}
}
