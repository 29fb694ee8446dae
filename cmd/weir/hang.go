package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/cmd/weir/internal/hang"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
)

// hangCmd says why a job hangs.
type hangCmd struct {
	Dumps       []string `arg:"" name:"dump|process" predictor:"file" help:"Dumps of PyTorch's flight recorder, pickled or in JSON: files, folders, patterns, .tar and .tar.gz archives. Or what ncclras -f json of NCCL 2.28.7 and later has printed. Or the number of a process of a running job of Weir, as weir status lists them."`
	Plan        string   `help:"Plan file that the job runs, in any form that weir reads." placeholder:"FILE" xor:"plan"`
	Schedule    string   `help:"Schedule that the job runs, by name, with --stages and --microbatches, in place of --plan." placeholder:"NAME" xor:"plan"`
	planFlags   `group:"Plan:"`
	Capacity    *int   `help:"Messages that a link between ranks holds, as in weir check." group:"Plan:" placeholder:"N"`
	From        string `help:"Form of the plan file: auto, text, compute, comms, comms-2.6, order or plan." group:"Plan:" enum:"auto,text,compute,comms,comms-2.6,order,plan,json" default:"auto"`
	Letters     string `help:"PyTorch's letters: today's, or the old ones of 2024." group:"Plan:" enum:"auto,today,old" default:"auto"`
	runtimeFlag `group:"Plan:"`
	Output      string `help:"Picture of the schedule with the front line of the hang, if the dumps fit the plan: FILE.html, or FILE.svg or FILE.png of one pipeline." short:"o" placeholder:"FILE"`
	JSON        bool   `help:"Print the report as JSON."`
}

// Help returns the text that is printed below the flags.
func (hangCmd) Help() string {
	return `The first two lines name the ranks that all others wait for, directly or through others, and say why. The rank of a dump is the number at the end of its name, as in _dump_3 or nccl_trace_rank_3. With a plan each rank is found in its program. The ranks of a running job of Weir say themselves what they do and wait for. The exit status is 1 if a rank is to blame or operations do not match, and 0 if nothing is pending.`
}

// maxBroken is the maximum number of unreadable files that are named if there is no dump.
const maxBroken = 40

// Run prints the report.
func (c *hangCmd) Run(s *streams) error {
	if c.Plan+c.Schedule == "" && (c.Ranks != nil || c.Stages != nil || c.Microbatches != nil || c.Capacity != nil || c.Runtime != "auto" || c.refuseFor("") != nil) {
		return usage("--ranks, --stages, --microbatches and the other flags of a plan have no effect without --plan or --schedule: give one of these")
	}
	if err := endsIn(c.Output, ".html", ".svg", ".png"); err != nil {
		return err
	}
	if c.Output != "" && c.Plan+c.Schedule == "" {
		return usage("--output draws a plan: give --plan or --schedule")
	}
	if process, err := strconv.Atoi(c.Dumps[0]); err == nil {
		if _, missing := os.Stat(c.Dumps[0]); missing != nil {
			return c.live(s, process)
		}
	}
	if len(c.Dumps) == 1 {
		if handled, err := c.ras(s); handled || err != nil {
			return err
		}
	}
	set, err := flightrec.Read(c.Dumps...)
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return err
	}
	if err != nil {
		return unreadable{{Text: err.Error()}}
	}
	if len(set.Dumps) == 0 {
		var found unreadable
		for _, b := range set.Broken[:min(len(set.Broken), maxBroken)] {
			found = append(found, fault{File: b.File, Text: b.Err.Error()})
		}
		if more := len(set.Broken) - maxBroken; more > 0 {
			found = append(found, fault{Text: "and " + units.Number(more, "more file") + " that are not dumps"})
		}
		if found == nil {
			return usage("there is no dump among %s: names of dumps end in their rank, as in _dump_3", units.Number(len(set.Skipped), "file"))
		}
		return found
	}
	plans, deadlock, err := c.plans(s)
	if err != nil {
		return err
	}
	report := hang.Dumps(set, plans...)
	if report.Fit != nil {
		report.Fit.Deadlock = deadlock
	}
	return c.print(s, report)
}

// ras reports on the output of ncclras, if the file contains it. handled is false for any other file.
func (c *hangCmd) ras(s *streams) (handled bool, err error) {
	if info, err := os.Stat(c.Dumps[0]); err != nil || !info.Mode().IsRegular() || info.Size() > maxDescription {
		return false, nil // flightrec reports files that cannot be read
	}
	text, err := os.ReadFile(c.Dumps[0])
	if err != nil || !hang.IsRAS(text) {
		return false, err
	}
	if c.Plan+c.Schedule != "" {
		return true, usage("%s is from ncclras, which counts collectives alone: leave out the plan", c.Dumps[0])
	}
	ras, wrong := hang.ReadRAS(text)
	if wrong != nil {
		return true, unreadable{{File: c.Dumps[0], Text: fmt.Sprint(wrong)}}
	}
	report := ras.Report()
	if c.JSON {
		err = printJSON(s.out, report)
	} else {
		_, err = io.WriteString(s.text, report.Text())
	}
	if err == nil && report.Found() {
		err = errShown
	}
	return true, err
}

// print prints a report, and writes its picture if --output is given.
func (c *hangCmd) print(s *streams, report *hang.Report) (err error) {
	if c.JSON {
		err = printJSON(s.out, report)
	} else {
		err = report.Write(s.text)
	}
	if err == nil && c.Output != "" {
		err = s.write(c.Output, map[string]func(io.Writer) error{".html": report.HTML, ".svg": report.SVG, ".png": asPNG(report.SVG)}[filepath.Ext(c.Output)])
	}
	if err == nil && report.Found() {
		err = errShown
	}
	return err
}

// live reports on the job that a process of this host leads.
func (c *hangCmd) live(s *streams, process int) error {
	if c.Plan+c.Schedule != "" || len(c.Dumps) > 1 {
		return usage("%d is the number of a process: give it alone, and without a plan", process)
	}
	all, err := launch.Statuses(process)
	if err != nil {
		return unreadable{{Text: fmt.Sprintf("%v; weir status lists the processes that do", err)}}
	}
	report, err := liveReport(&all[0])
	if err != nil {
		return unreadable{{Text: fmt.Sprintf("process %d does not say what its ranks wait for: %s", process, strings.TrimSpace(all[0].Text))}}
	}
	return c.print(s, report)
}

// liveReport returns the report on the job that a process leads.
func liveReport(process *launch.Status) (*hang.Report, error) {
	var ranks []transport.RankStatus
	if err := json.Unmarshal(process.Ranks, &ranks); err != nil {
		return nil, err
	}
	return hang.Live(ranks), nil
}

// plans returns the plan that the flags name, if any. A plan without transfers is returned once with the
// transfers of each link capacity and runtime that --runtime allows. deadlock is the first fault of an invalid
// plan, or "".
func (c *hangCmd) plans(s *streams) (plans []*schedule.Plan, deadlock string, err error) {
	if c.Plan+c.Schedule == "" {
		return nil, "", nil
	}
	if named, err := schedule.Find(c.Schedule); err == nil && c.Ranks == nil && c.Stages != nil {
		ranks := max(*c.Stages/named.PerRank, 1)
		c.Ranks = &ranks
	}
	from := source{Plan: c.Plan + c.Schedule, planFlags: c.planFlags, Capacity: c.Capacity, From: c.From, Letters: c.Letters}
	plan, file, err := from.read(s, c.runtimeFlag)
	if err != nil {
		return nil, "", err
	}
	if _, err := prove(plan, file, plan.Capacity); err != nil {
		found, invalid := errors.AsType[faults](err)
		if !invalid {
			return nil, "", err
		}
		deadlock = found[0].String()
	}
	if plan.HasTransfers() {
		return []*schedule.Plan{plan}, deadlock, nil
	}
	wanted, given := schedule.ParseRuntime(c.Runtime)
	for _, runtime := range []schedule.Runtime{schedule.PyTorch, schedule.Weir} {
		for _, capacity := range []int{0, 1, schedule.Unlimited} {
			own := *plan
			own.Runtime = runtime
			if with, err := lower.Transfers(&own, capacity); err == nil && (!given || wanted.Posts() == runtime.Posts()) {
				plans = append(plans, with)
			}
		}
	}
	if plans == nil {
		return nil, "", faults{{Text: "the plan cannot be compared with dumps: " + deadlock}}
	}
	return plans, deadlock, nil
}
