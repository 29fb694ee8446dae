package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/costs"
)

const (
	// mostRanks bounds the ranks: each reserves address space for its own device.
	mostRanks = 64
	// usualStages is how many stages the model is cut into on one rank.
	usualStages = 4
)

// pipeline is what -plan, -ranks and -stages come to.
type pipeline struct {
	fixed     *schedule.Plan    // of the file that -plan names; nil for a schedule
	schedule  schedule.Schedule // the zero one for a file
	rule      schedule.Rule
	placement schedule.Placement
}

// readPlan reads the file that -plan names, and sets what follows from it. The names of
// schedules have neither dots nor slashes.
func (o *options) readPlan() error {
	if o.fixed != nil || !strings.ContainsAny(o.plan, `./\`) {
		return nil
	}
	file, err := os.Open(o.plan)
	if err != nil {
		return fmt.Errorf("-plan: %w", plain(err))
	}
	defer file.Close() // It was only read.
	read, err := format.Read(file, format.Options{Name: o.plan})
	if err != nil {
		return fmt.Errorf("-plan: %w", err)
	}
	o.fixed, o.priced = read.Plan, read.Costs
	set := make(map[string]bool) // by the command line, or by a checkpoint
	o.set.Visit(func(f *flag.Flag) { set[f.Name] = true })
	var faults []error
	for _, number := range []struct {
		flag  string
		value *int
		of    int
	}{{"ranks", &o.ranks, o.fixed.Placement.Ranks}, {"stages", &o.stages, o.fixed.Placement.Depth()}} {
		if set[number.flag] && *number.value != number.of {
			faults = append(faults, fmt.Errorf("-%s is %d, and %s has %d: leave it out", number.flag, *number.value, o.plan, number.of))
		}
		*number.value = number.of
	}
	if !set["microbatches"] {
		o.microbatches = o.fixed.Microbatches
	}
	return errors.Join(faults...)
}

// place finds the schedule, and the stages and their ranks.
func (o *options) place() error {
	found, err := schedule.Find(o.plan)
	if o.fixed != nil {
		found, err = schedule.Schedule{Rule: lower.Fixed(o.fixed), Ascends: ascends(o.fixed)}, nil
	}
	if err != nil {
		return fmt.Errorf("-plan: %w", plainly(err))
	}
	var faults []error
	for _, knob := range knobs {
		if o.given[knob.flag] && !knob.fits(o.plan, o.ranks) {
			faults = append(faults, fmt.Errorf("-%s goes with %s only", knob.flag, knob.goesWith()))
		}
	}
	o.schedule, o.rule = found, found.Rule
	if o.descending {
		o.rule = schedule.BreadthFirstDescending
	}
	if o.ranks < 1 || o.stages < 0 || o.model.Layers < 1 {
		return errors.Join(faults...) // which is said elsewhere
	}
	parts := o.model.Layers + 2
	switch {
	case !o.given["stages"] && o.fixed == nil:
		o.stages = o.usualStages(parts)
	case o.ranks == 1 && o.stages > parts:
		faults = append(faults, fmt.Errorf("-stages %d is more than -layers %d has parts for: take at most %d, the embedding, the blocks and the head",
			o.stages, o.model.Layers, parts))
	}
	if o.fixed != nil {
		o.placement = o.fixed.Placement
	} else if o.placement, err = found.Place(o.ranks, o.stages); err != nil {
		faults = append(faults, fmt.Errorf("-stages: %w", plainly(err)))
	}
	return errors.Join(faults...)
}

// usualStages returns how many stages there are where -stages does not say.
func (o *options) usualStages(parts int) int {
	if o.ranks > 1 && o.emitCosts != "" && !o.given["plan"] {
		return 2 * o.ranks // which most plans take
	}
	if o.ranks > 1 {
		return o.ranks * o.schedule.PerRank
	}
	stages := min(usualStages, parts)
	if _, err := o.schedule.Place(1, stages); err != nil {
		return o.schedule.PerRank
	}
	return stages
}

// relays returns how many stages have no part of the model, and hand on what they get.
func (o *options) relays() int { return max(o.placement.Depth()-(o.model.Layers+2), 0) }

// ascends reports whether the backward takes microbatches in ascending order, so that
// gradients come to the same bits as under every other such plan (L9).
func (o *options) ascends() bool {
	whole := o.plan == "seq1f1b" && o.slices < 2 // which is 1F1B
	return (o.schedule.Ascends || whole) && !o.descending
}

// ascends reports whether every stage of a plan adds to its gradients in ascending order.
func ascends(plan *schedule.Plan) bool {
	if plan.Placement.Copies > 1 {
		return false // each copy adds its own microbatches
	}
	for rank := range plan.Programs {
		last := map[int]int{} // by stage
		for a := range plan.All(rank) {
			if a.Kind() != schedule.B && a.Kind() != schedule.W {
				continue
			}
			if a.Microbatch() < last[a.Stage()] {
				return false
			}
			last[a.Stage()] = a.Microbatch()
		}
	}
	return true
}

// params are what the plan of a training step is made from.
func (o *options) params() schedule.Params {
	return schedule.Params{
		Placement: o.placement, Microbatches: o.microbatches, Group: o.group, Cap: o.cap, Slices: o.slices,
	}
}

// makePlan makes the plan of a step, as the runner will, so that whatever is wrong
// with it is said before anything is written.
func (o *options) makePlan() error {
	plan, err := o.rule(o.params())
	if err == nil {
		split := slices.Repeat([]schedule.Facts{{Split: true}}, o.placement.Stages())
		plan, err = lower.Prepare(plan, lower.Passes{Facts: split, Capacity: o.capacity, NoLifetimes: true})
	}
	if err != nil {
		return fmt.Errorf("-plan %s: %w", o.plan, plainly(err))
	}
	if o.costs != "" {
		o.priced, err = readCosts(o.costs)
	} else if o.priced != nil { // those of the plan's file, which may have been made without a clock
		if _, known := costs.Seconds(o.priced, 0); !known {
			o.priced = nil
		}
	}
	if o.priced == nil && err == nil {
		return nil
	}
	if err == nil {
		o.priced.Resident = nil // the trainer knows what is resident
		for stage := range o.priced.Stages {
			o.priced.Stages[stage].Resident = 0
		}
		_, err = simulate.Run(plan, o.priced, o.capacity)
	}
	if err != nil {
		return fmt.Errorf("-costs: %w", plainly(err))
	}
	return nil
}

// plainly takes the prefixes out of an error of package schedule: flags are named here.
func plainly(err error) error {
	return errors.New(strings.NewReplacer(schedule.ErrParams.Error()+": ", "", simulate.ErrCosts.Error()+": ", "").Replace(err.Error()))
}

// planNames are the names that -plan takes.
func planNames() (names []string) {
	for _, s := range schedule.Schedules() {
		names = append(names, s.Name)
	}
	return names
}

// knob is a flag that only some plans have.
type knob struct {
	flag  string
	plans []string // depth-first the last
	one   bool     // with depth-first only on one rank
	many  bool     // with depth-first only on several ranks
}

var knobs = [...]knob{
	{flag: "group", plans: []string{"interleaved", "zb1p", "grouped-interleave", "depth-first"}, one: true},
	{flag: "cap", plans: []string{"zb-h2", "depth-first"}, many: true},
	{flag: "slices", plans: []string{"seq1f1b"}},
	{flag: "descending", plans: []string{"breadth-first"}},
}

// fits reports whether a plan on so many ranks has the knob.
func (k *knob) fits(plan string, ranks int) bool {
	if plan == "depth-first" && (k.one && ranks > 1 || k.many && ranks == 1) {
		return false
	}
	return slices.Contains(k.plans, plan)
}

// goesWith says in words what the knob goes with.
func (k *knob) goesWith() string {
	words := "-plan " + list(k.plans)
	switch {
	case k.one:
		words += " on one rank"
	case k.many:
		words += " on several ranks"
	}
	return words
}

// list writes words with or before the last one.
func list(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// readCosts reads a file of costs.
func readCosts(path string) (*simulate.Costs, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer file.Close() // It was only read.
	read, err := simulate.ReadCosts(file)
	if err != nil {
		return nil, err
	}
	if _, known := costs.Seconds(read, 0); !known {
		return nil, fmt.Errorf("%s: times are in %q: give ns, us, ms or s", path, read.Unit)
	}
	return read, nil
}
