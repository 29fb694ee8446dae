package job

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/costs"
)

// usualStages is the default number of stages on one rank.
const usualStages = 4

// Pipeline holds the plan, ranks and stages selected by -plan, -ranks and -stages.
type Pipeline struct {
	Fixed     *schedule.Plan    // the plan in the file that -plan names; nil if -plan names a schedule
	Schedule  schedule.Schedule // for a plan from a file, it has no name
	Rule      schedule.Rule
	Placement schedule.Placement
}

// ReadPlan reads the file that -plan names, if it names one, and sets the flags that the plan
// determines. Names of schedules contain neither dots nor slashes.
func (o *Options) ReadPlan() error {
	if o.Fixed != nil || !strings.ContainsAny(o.Plan, `./\`) {
		return nil
	}
	file, err := os.Open(o.Plan)
	if err != nil {
		return fmt.Errorf("-plan: %w", atomicfile.Plain(err))
	}
	defer file.Close() // the file was only read
	read, err := format.Read(file, format.Options{Name: o.Plan})
	if err != nil {
		return fmt.Errorf("-plan: %w", err)
	}
	o.Fixed, o.Priced = read.Plan, read.Costs
	set := make(map[string]bool) // flags set on the command line or by a checkpoint
	o.FlagSet.Visit(func(f *flag.Flag) { set[f.Name] = true })
	number := func(flag string, value *int, of int) {
		if set[flag] && *value != of {
			err = errors.Join(err, fmt.Errorf("-%s is %d, and %s has %d: leave it out", flag, *value, o.Plan, of))
		}
		*value = of
	}
	number("ranks", &o.Ranks, o.Fixed.Placement.Ranks)
	number("stages", &o.Stages, o.Fixed.Placement.Depth())
	if !set["microbatches"] {
		o.Microbatches = o.Fixed.Microbatches * o.Replicas
	}
	return err
}

// place selects the schedule, the stages and their ranks.
func (o *Options) place(parts int) error {
	found, err := schedule.Find(o.Plan)
	if o.Fixed != nil {
		found, err = schedule.Schedule{Rule: lower.RuleFromPlan(o.Fixed), AscendingBackward: ascendingBackward(o.Fixed)}, nil
	}
	if err != nil {
		err = fmt.Errorf("-plan: %s", diagnostic.Text(err, nil))
		if _, no := os.Stat(o.Plan); no == nil {
			err = fmt.Errorf("%w; for the file of that name give ./%s", err, o.Plan)
		}
		return err
	}
	o.Schedule, o.Rule = found, found.Rule
	var faults []error
	switch {
	case o.Descending && found.Name != "breadth-first":
		faults = append(faults, errors.New("-descending is for -plan breadth-first: leave it out"))
	case o.Descending:
		o.Rule = schedule.BreadthFirstDescending
	case o.Fixed != nil && o.Fixed.Mode != schedule.Training:
		faults = append(faults, fmt.Errorf("-plan: %s is a plan of mode %v: give a training plan", o.Plan, o.Fixed.Mode))
	case o.Fixed != nil && (o.Group > 1 || o.Cap > 0 || o.Slices > 1):
		faults = append(faults, fmt.Errorf("-group, -cap and -slices are for a schedule, and %s is a plan: leave them out", o.Plan))
	}
	if o.Ranks < 1 || o.Stages < 0 || parts < 1 {
		return errors.Join(faults...) // other errors report this
	}
	if o.Fixed != nil {
		o.Placement = o.Fixed.Placement
		return errors.Join(faults...)
	}
	if o.Stages == 0 {
		o.Stages = min(usualStages, parts)
		if _, err := found.Place(1, o.Stages); o.Ranks > 1 || err != nil {
			o.Stages = o.Ranks * found.PerRank
		}
	}
	if o.Placement, err = found.Place(o.Ranks, o.Stages); err != nil {
		faults = append(faults, fmt.Errorf("-stages: %s", diagnostic.Text(err, nil)))
	}
	return errors.Join(faults...)
}

// AscendingBackward reports whether the backward takes microbatches in ascending order, so that gradients
// are bit-equal under all such plans (L9).
func (o *Options) AscendingBackward() bool {
	whole := o.Schedule.Name == "seq1f1b" && o.Slices < 2 // without slices, seq1f1b equals 1F1B
	return (o.Schedule.AscendingBackward || whole) && !o.Descending
}

// ascendingBackward reports whether every stage of a plan adds up its gradients in ascending order of
// microbatches.
func ascendingBackward(plan *schedule.Plan) bool {
	if plan.Placement.Copies > 1 {
		return false // each copy adds up its own microbatches
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

// RunnerPlan returns the plan in the form that the runner takes.
func (o *Options) RunnerPlan() runner.Plan {
	return runner.Plan{Rule: o.Rule, Placement: o.Placement, Group: o.Group, Cap: o.Cap, Slices: o.Slices}
}

// RunnerOffload converts -offload and -offload-to to the runner's configuration.
func (o *Options) RunnerOffload() runner.Offload {
	return runner.Offload{Share: o.Offload, Folder: o.OffloadTo}
}

// prove makes a step's plan, proves it, and checks that the costs suit it. It runs before anything is
// written, and its errors name the flags. The runner makes the plan again, because only the runner knows
// the tensors that the stages read and keep, and proves their lifetimes too. Package trainer/metrics
// simulates the runner's plan.
func (o *Options) prove() error {
	counts := []int{(o.Microbatches + o.Replicas - 1) / o.Replicas} // the largest number of microbatches of a replica
	if o.Audit > 0 {
		counts = append(counts, o.Microbatches/o.Replicas+1) // with the one that is computed again
	}
	var err error
	for _, count := range slices.Compact(counts) {
		if err == nil {
			err = o.proveFor(count)
		}
	}
	if unused, ok := errors.AsType[*schedule.UnusedError](err); ok {
		return fmt.Errorf("-plan %s %s: leave out -%s %d%s", unused.Rule, unused.Reason, strings.ToLower(unused.Field), unused.Value, unused.Advice)
	}
	if err != nil {
		return fmt.Errorf("-plan %s: %s", o.Plan, diagnostic.Text(err, nil))
	}
	if o.Costs != "" {
		if o.Priced, err = readCosts(o.Costs); err != nil {
			return fmt.Errorf("-costs: %s", diagnostic.Text(err, nil))
		}
	} else if o.Priced == nil {
		return nil
	} else if _, known := costs.Seconds(o.Priced, 0); !known { // the plan was made without times
		o.Priced = nil
		return nil
	}
	o.Priced.Resident = nil // the trainer provides the resident bytes
	for stage := range o.Priced.Stages {
		o.Priced.Stages[stage].Resident = 0
	}
	if err = o.Priced.ValidateFor(o.Ranks, o.Placement.Depth(), o.Placement.Stages()); err != nil {
		return fmt.Errorf("-costs: %s", diagnostic.Text(err, nil))
	}
	return nil
}

// proveFor makes and proves the plan for a replica's number of microbatches.
func (o *Options) proveFor(microbatches int) error {
	plan, err := o.Rule(schedule.Params{
		Placement: o.Placement, Microbatches: microbatches, Group: o.Group, Cap: o.Cap, Slices: o.Slices,
	})
	if err != nil {
		return err
	}
	split := slices.Repeat([]schedule.StageInfo{{Split: true}}, o.Placement.Stages())
	_, err = lower.Prepare(plan, lower.Passes{StageInfo: split, Capacity: o.Capacity, NoLifetimes: true})
	return err
}

// readCosts reads a file of costs, whose unit must be one of time.
func readCosts(path string) (*simulate.Costs, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, atomicfile.Plain(err)
	}
	defer file.Close() // the file was only read
	read, err := simulate.ReadCosts(file)
	if err != nil {
		return nil, err
	}
	if _, known := costs.Seconds(read, 0); !known {
		return nil, fmt.Errorf("%s: times are in %q: give ns, us, ms or s", path, read.Unit)
	}
	return read, nil
}
