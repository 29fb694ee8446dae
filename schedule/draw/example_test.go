package draw_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Example simulates and draws a plan.
func Example() {
	plan, err := schedule.ZBV(schedule.Params{Placement: schedule.Wave(4, 8), Microbatches: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}
	step, err := draw.Simulate(plan, costs, schedule.Unlimited)
	if err != nil {
		fmt.Println(err)
		return
	}
	var picture strings.Builder
	if err := step.SVG(&picture); err != nil {
		fmt.Println(err)
		return
	}
	_, facts, _ := strings.Cut(picture.String(), "<desc>")
	facts, _, _ = strings.Cut(facts, "</desc>")
	fmt.Println(facts)
	// Output:
	// 4 ranks · 8 stages · 8 microbatches · makespan 51 ticks · bubble 5.9 % (0.0 % of the span) · peak 4 microbatches in flight on rank 0
}

// The trace of the smallest step.
func ExampleStep_Trace() {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(1, 1), Microbatches: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs := &simulate.Costs{Unit: "ms", Stages: []simulate.StageCosts{{F: 2, B: 3, Saved: 1024}}}
	step, err := draw.Simulate(plan, costs, schedule.Unlimited)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := step.Trace(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"displayTimeUnit":"ms","traceEvents":[
	// {"ph":"M","name":"process_name","pid":0,"tid":0,"ts":0,"args":{"name":"rank 0"}},
	// {"ph":"M","name":"process_sort_index","pid":0,"tid":0,"ts":0,"args":{"sort_index":0}},
	// {"ph":"M","name":"thread_name","pid":0,"tid":0,"ts":0,"args":{"name":"compute"}},
	// {"ph":"X","name":"0F0","cat":"F","pid":0,"tid":0,"ts":0,"dur":2000,"args":{"stage":0,"microbatch":0,"kind":"F","position":0}},
	// {"ph":"X","name":"0B0","cat":"B","pid":0,"tid":0,"ts":2000,"dur":3000,"args":{"stage":0,"microbatch":0,"kind":"B","position":1}},
	// {"ph":"C","name":"live bytes","pid":0,"tid":0,"ts":2000,"args":{"saved":1024}},
	// {"ph":"C","name":"live bytes","pid":0,"tid":0,"ts":5000,"args":{"saved":0}}
	// ]}
}
