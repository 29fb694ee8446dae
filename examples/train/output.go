package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/costs"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/outfile"
	"github.com/weir-ml/weir/trainer/units"
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
		if t.world != nil {
			where = fmt.Sprintf("%d processes", t.world.Processes)
		}
		fmt.Fprintf(t.out, "ranks   %d in %s, on %d cores; links of capacity %d\n", o.AllRanks(), where, runtime.GOMAXPROCS(0), o.Capacity)
		if n := o.relays(); n > 0 {
			fmt.Fprintf(t.out, "        %d of the %d stages only pass on their inputs; -layers %d gives each a part of the model\n", n, o.Stages, o.Stages-2)
		}
		if !o.Ascends() {
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
	if t.first > 0 {
		fmt.Fprintf(t.out, "resume  %s, after step %d\n", o.Resume, t.first)
		if t.passed != nil {
			fmt.Fprintf(t.out, "        newer ones are damaged: %s\n", oneLine(t.passed))
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
		First: t.first, Plan: t.layout, Failures: t.opts.Folder, Samples: t.run.Samples,
		LossUnit: "nats per " + t.opts.unit(), Baselines: t.data.baselines(),
	}
	if t.folder != nil {
		cfg.Log, cfg.Failures = t.folder.Memory, t.folder.Path
	}
	for rank, dev := range t.ranks {
		cfg.Spaces, cfg.Stages = append(cfg.Spaces, dev), append(cfg.Stages, t.opts.Placement.On(rank%t.opts.Ranks))
	}
	if t.opts.Priced != nil {
		cfg.Seconds = func(time int64) float64 {
			seconds, _ := costs.Seconds(t.opts.Priced, time) // its unit is known
			return seconds
		}
	}
	return cfg
}

// show prints the progress of the run.
func (t *trainer) show(result *runner.Result, nats float64) {
	t.progress.Step(t.done, func(left time.Duration) (long, short string) {
		speed, live, peak, growth, bubble := int64(t.metrics.TokensPerSecond()), units.Size(result.Live), units.Size(result.Peak), t.metrics.Growth(), ""
		if t.opts.AllRanks() > 1 {
			bubble = "  bubble " + units.Percent(result.Bubble())
		}
		return fmt.Sprintf("step %*d/%d  loss %.3f nats/%s  %s tokens/s%s  live %s  peak %s  growth %d B  left %s",
				len(fmt.Sprint(t.opts.steps)), t.done, t.opts.steps, nats, t.opts.unit(), units.Count(speed), bubble, live, peak, growth, left),
			fmt.Sprintf("%d/%d  %.3f nats/%s  %dk tok/s  live %s  peak %s  growth %d  %s", t.done, t.opts.steps, nats, t.opts.unit(), speed/1000, live, peak, growth, left)
	})
}

// finish writes all results of a run, even if it was interrupted or failed, and prints the
// reason of its end.
func (t *trainer) finish(ctx context.Context, err error) error {
	if t.progress != nil {
		t.progress.End()
	}
	if err = t.world.Settle(ctx, t.done, err); errors.Is(err, job.ErrInterrupted) {
		err = fmt.Errorf("%w after step %d of %d: everything is written", job.ErrInterrupted, t.done, t.opts.steps)
	}
	err = cmp.Or(err, t.world.JoinActions(t.metrics))
	tensors, fault := t.tensors(weights, false)
	digest := ""
	if fault == nil {
		digest, fault = t.world.SHA256(tensors)
	}
	failed := err != nil && !errors.Is(err, job.ErrInterrupted)
	sound := !failed || errors.Is(err, outfile.ErrWriting) // the weights are valid
	began := err == nil || t.done > t.first                // without a step, keep the older checkpoint
	save, lost := t.world.Agree(context.Background(), t.opts.Checkpoint != "" && fault == nil && began && sound && !t.saved)
	if fault = cmp.Or(fault, lost); save && fault == nil {
		fault = t.save()
	}
	if !t.world.Leads() {
		return t.metrics.Explained(cmp.Or(err, fault))
	}
	s := t.summary(err, digest)
	if !began {
		s.Checkpoint = ""
	}
	also := func(next error) { fault = cmp.Or(fault, next) }
	if failed {
		t.metrics.Fail(err)
	}
	also(t.folder.Finish(t.page(s).Write))
	if !failed {
		also(t.opts.WriteJSON(t.json, s))
		also(s.table(t.out, t.folder))
		also(t.people.Err)
		if fault != nil {
			return fault
		}
	}
	return t.metrics.Explained(err)
}

// say prints a line about this process.
func say(line string) { fmt.Fprintln(os.Stderr, "train: "+line) }

// status returns the status of the ranks that this process can observe.
func (t *trainer) status() launch.Status {
	switch {
	case !t.built.Load():
		return launch.Status{Text: "the job prepares its first step\n"}
	case t.world == nil && t.opts.AllRanks() == 1:
		return launch.Status{Text: "rank 0 is the only rank, and waits for none\n"}
	}
	return job.Status(append(t.run.Standings(), t.world.Standings()...))
}
