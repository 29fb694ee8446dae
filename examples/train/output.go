package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/costs"
	"github.com/weir-ml/weir/trainer/metrics"
)

// introduce describes the run before it starts.
func (t *trainer) introduce() {
	o, d, s := t.opts, t.data, t.metrics.Summary()
	fmt.Fprintf(t.out, "text    %s, %s %ss to train on, %s held out\n", d.name, units.Count(int64(d.training.Len())), o.unit(), units.Count(int64(d.heldout.Len())))
	if d.text != nil && d.text.Cut {
		fmt.Fprintf(t.out, "        there is more; this is the first %s\n", units.Size(int64(d.len())))
	}
	fmt.Fprintf(t.out, "model   %s parameters, %s with gradients and moments; %s\n", units.Count(t.weights()), units.Size(s.ModelBytes), o.describe())
	if o.AllRanks() > 1 {
		where := "this process"
		if t.session.Process != nil {
			where = fmt.Sprintf("%d processes", t.session.Process.Processes)
		}
		fmt.Fprintf(t.out, "ranks   %d in %s, on %d cores; links of capacity %d\n", o.AllRanks(), where, runtime.GOMAXPROCS(0), o.Capacity)
		if n := o.identities(); n > 0 {
			fmt.Fprintf(t.out, "        %d of the %d stages only pass on their inputs; -layers %d gives each a part of the model\n", n, o.Stages, o.Stages-2)
		}
		if !o.AscendingBackward() {
			fmt.Fprintf(t.out, "        %s adds gradients in an order of its own: weights differ from those of other plans in their last bits\n", o.Plan)
		}
	}
	if planned := s.Memory(); planned != "" {
		fmt.Fprintf(t.out, "memory  %s; %s\n", planned, t.logits())
	} else {
		fmt.Fprintf(t.out, "memory  not planned: %s\n", oneLine(t.unplanned))
	}
	if o.Offload > 0 && t.layout != nil && t.layout.FarHeight() == 0 {
		fmt.Fprintf(t.out, "far     nothing is moved: in this plan each backward follows its forward too soon, or no slot that may be moved is within -offload %v\n", o.Offload)
	} else if t.layout != nil && t.layout.FarHeight() > 0 {
		where := "memory of this process"
		switch {
		case o.OffloadTo != "":
			where = "a file in " + o.OffloadTo
		case o.device != "host":
			where = "page-locked memory of this process"
		}
		fmt.Fprintf(t.out, "far     %s for the saved state of a rank at most, in %s\n", units.Size(t.layout.FarHeight()), where)
	}
	if o.Offload > 0 && t.profile != nil {
		for _, near := range t.profile.NearSlots(&o.Placement, o.Offload) {
			fmt.Fprintf(t.out, "        %v\n", near)
		}
	}
	if t.session.First > 0 {
		fmt.Fprintf(t.out, "resume  %s, after step %d\n", o.Resume, t.session.First)
		if t.session.Passed != nil {
			fmt.Fprintf(t.out, "        newer ones are damaged: %s\n", oneLine(t.session.Passed))
		}
	}
	fmt.Fprintf(t.out, "folder  %s\n", t.folder.Path)
	if url := t.watch.URL(); url != "" {
		fmt.Fprintf(t.out, "live    %s\n", url)
	}
}

// logits describes which logits a microbatch keeps.
func (t *trainer) logits() string {
	switch keep := t.model.KeepLogits; {
	case keep == transformer.AllLogits:
		return "logits are kept"
	case keep > 0:
		return fmt.Sprintf("a microbatch keeps up to %s of logits", units.Size(keep))
	}
	return "logits are computed twice"
}

// weights returns the number of weights of the model.
func (t *trainer) weights() (n int64) {
	for _, p := range t.model.Parameters() {
		size := 1
		for _, d := range p.Shape {
			size *= d
		}
		n += int64(size)
	}
	return n
}

// measured returns the configuration of the metrics.
func (t *trainer) measured() metrics.Config {
	cfg := metrics.Config{
		First: t.session.First, Plan: t.layout, Failures: t.opts.Folder, Samples: t.run.Samples,
		LossUnit: "nats per " + t.opts.unit(), Baselines: t.data.baselines(),
	}
	if t.folder != nil {
		cfg.Log, cfg.Failures = t.folder.Memory, t.folder.Path
	}
	for rank, dev := range t.ranks {
		cfg.Spaces, cfg.Stages = append(cfg.Spaces, dev), append(cfg.Stages, t.opts.Placement.On(rank%t.opts.Ranks))
	}
	if t.opts.Priced != nil && t.opts.pack == 0 { // the packer simulates packed steps
		cfg.Costs, cfg.Capacity = t.opts.Priced, t.opts.Capacity
		cfg.Seconds = func(time int64) float64 {
			seconds, _ := costs.Seconds(t.opts.Priced, time) // its unit is known
			return seconds
		}
	}
	return cfg
}

// show prints the progress of the run.
func (t *trainer) show(result *runner.Result, nats float64) {
	t.progress.Step(t.session.Done+1, func(left time.Duration) (long, short string) {
		speed, live, peak, growth, bubble := int64(t.metrics.TokensPerSecond()), units.Size(result.Live), units.Size(result.Peak), t.metrics.Growth(), ""
		if t.opts.AllRanks() > 1 {
			bubble = "  bubble " + units.Percent(result.Bubble(), 1)
		}
		return fmt.Sprintf("step %*d/%d  loss %.3f nats/%s  %s tokens/s%s  live %s  peak %s  growth %d B  left %s",
				len(fmt.Sprint(t.opts.steps)), t.session.Done+1, t.opts.steps, nats, t.opts.unit(), units.Count(speed), bubble, live, peak, growth, left),
			fmt.Sprintf("%d/%d  %.3f nats/%s  %dk tok/s  live %s  peak %s  growth %d  %s", t.session.Done+1, t.opts.steps, nats, t.opts.unit(), speed/1000, live, peak, growth, left)
	})
}

// End writes the results of a run in the leading process, even if the run was interrupted. If it
// has failed, End writes only the files of the run folder.
func (t *trainer) End(ended error, saved bool) error {
	t.progress.End()
	fault := t.session.Process.JoinActions(t.metrics)
	tensors, err := t.tensors(weights, false)
	digest := ""
	if err == nil {
		digest, err = t.session.Process.SHA256(tensors)
	}
	if fault = cmp.Or(fault, err); !t.session.Process.Leads() {
		return fault
	}
	s := t.summary(ended, digest)
	if !saved { // the checkpoint, if there is one, is older
		s.Checkpoint = ""
	}
	also := func(next error) { fault = cmp.Or(fault, next) }
	failed := ended != nil && !s.Interrupted
	if failed {
		t.metrics.Fail(ended)
	}
	also(t.folder.Finish(t.page(s).Write))
	if !failed {
		also(t.opts.WriteJSON(t.json, s))
		also(s.table(t.out, t.folder))
		t.packing.table(t.out, t.session.Done-t.session.First)
		also(t.people.Err)
	}
	return fault
}

// say prints a line about this process.
func say(line string) { fmt.Fprintln(os.Stderr, "train: "+line) }
