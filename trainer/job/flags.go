package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/transport/tcp"
)

// Options holds the values of a job's flags. To change defaults, set fields between Flags and
// Parse.
type Options struct {
	Plan         string // the name of a schedule, or the file of a plan
	Ranks        int
	Replicas     int // number of replicas of the pipeline
	Shard        int // level of runner.Replicas.Shard
	Gathered     int // number of stages whose weights are gathered at the same time; 0 for the runner's default
	Stages       int // 0 for the plan's usual number
	Microbatches int // total over all replicas
	Group        int // 0: the plan's own
	Cap          int // 0: the plan's own
	Slices       int
	Descending   bool
	Capacity     int    // capacity of a link between two ranks
	Costs        string // file with the costs for the simulation of a step

	Budget    int64 // maximum bytes of a step on a rank, 0 for no limit
	Unplanned bool  // memory is allocated as it is needed

	Offload   float64 // share of the saved state that is kept in far memory while no action needs it
	OffloadTo string  // folder of the files used as far memory; "" for the heap

	Transport string // how the processes connect; "" for one process, or the choice of weir launch
	Process   int    // number of this process, if it is given
	Processes int    // number of all processes, if it is given
	Launcher  string // "none" ignores the environment
	TLS       string // folder of certificates
	Insecure  bool
	Sums      bool // whether every message has a checksum
	Audit     int  // a microbatch is computed again in every Audit-th step; 0 for never

	Folder      string // folder of the run; "" for a new one
	Serve       string // address of the live page
	TensorBoard string // folder for TensorBoard events
	JSON        string // file for the summary

	Checkpoint string           // folder
	Saver      checkpoint.Saver // when to save, and how many checkpoints to keep
	Resume     string

	// Pipeline and Priced are set by Validate. Priced holds the costs from -costs or from the
	// plan's file, or is nil.
	Pipeline
	Priced *simulate.Costs

	FlagSet *flag.FlagSet   // the set in which the flags are registered
	given   map[string]bool // the flags that were on the command line
}

// Flags registers the flags of a job, and returns their values. The defaults are one rank, 64
// microbatches and the depth-first schedule.
func Flags(set *flag.FlagSet) *Options {
	o := &Options{Plan: "depth-first", Ranks: 1, Replicas: 1, Microbatches: 64, Capacity: 1, FlagSet: set}
	set.StringVar(&o.Plan, "plan", o.Plan, "schedule of a step: "+List(schedule.Names())+", or the `file` of a plan (weir choose -o), which sets -ranks, -stages and the default of -microbatches")
	set.IntVar(&o.Ranks, "ranks", o.Ranks, "ranks of the pipeline; each has its own device and goroutine")
	set.IntVar(&o.Replicas, "replicas", o.Replicas, "replicas of the pipeline, which share the microbatches of a step and sum their gradients; each has -ranks ranks")
	set.IntVar(&o.Shard, "shard", o.Shard, "`level`: a replica holds its part, instead of all, of nothing (0), the state of the optimizer (1), gradients as well (2), or weights as well (3)")
	set.IntVar(&o.Gathered, "gathered", o.Gathered, "number of stages whose weights a rank holds whole at once, for -shard 3; default: 1, or 2 if the plan joins pairs")
	set.IntVar(&o.Stages, "stages", o.Stages, "pipeline stages of the model; default: 4 on one rank, otherwise one or two per rank, depending on the plan")
	set.IntVar(&o.Microbatches, "microbatches", o.Microbatches, "microbatches per step, of all replicas together; those of a plan, and of weir, are in each replica")
	set.IntVar(&o.Group, "group", o.Group, "microbatches that run together, for -plan interleaved, zb1p, grouped-interleave, or depth-first on one rank; default: the plan's own")
	set.IntVar(&o.Cap, "cap", o.Cap, "maximum number of microbatches in flight on a rank, for -plan zb-h2, or depth-first on several ranks; default: the plan's own")
	set.IntVar(&o.Slices, "slices", o.Slices, "slices of a sequence, for -plan seq1f1b; each slice is a separate microbatch, which does not read the others")
	set.BoolVar(&o.Descending, "descending", o.Descending, "process microbatches in descending order in the backward, for -plan breadth-first")
	set.IntVar(&o.Capacity, "capacity", o.Capacity, "capacity of a link between two ranks, in messages; 0: a send waits for its receiver; -1: no limit")
	set.StringVar(&o.Costs, "costs", o.Costs, "`file` of costs: a step is simulated and compared with the measured ones")
	set.Func("budget", "maximum `bytes` of a step on a rank, without the model, such as 64MiB; 0: no limit. A step that needs more is refused before it begins", func(text string) (err error) {
		o.Budget, err = units.ParseSize(text)
		return err
	})
	set.BoolVar(&o.Unplanned, "unplanned", o.Unplanned, "allocate memory when it is needed, instead of planning it before a step")
	set.Float64Var(&o.Offload, "offload", o.Offload, "`share` of the bytes that stages save for the backward, from 0 to 1, to keep in far memory while no action needs them")
	set.StringVar(&o.OffloadTo, "offload-to", o.OffloadTo, "`folder` of far memory: each rank has a file without a name there, whose space is reserved before the first step; default: memory of this process, which saves nothing unless stages compute on a device")
	set.StringVar(&o.Transport, "transport", o.Transport, "`address` at which the processes of a job connect: unix:PATH or tcp:HOST:PORT, where the first process listens; launcher: the address from its launcher; mpi: MPI, in a program built with -tags mpi. Default: the address from weir launch, or a single process")
	set.IntVar(&o.Process, "process", o.Process, "number of this process, for -transport; default: the number from the launcher (weir launch, Open MPI, PMI, torchrun, Slurm, Kubernetes)")
	set.IntVar(&o.Processes, "processes", o.Processes, "number of processes, for -transport; default: the number from the launcher")
	set.StringVar(&o.Launcher, "launcher", o.Launcher, "none: ignore the environment variables of a launcher")
	set.StringVar(&o.TLS, "tls", o.TLS, "`folder` of certificates made by weir launch certs, for processes on several hosts")
	set.BoolVar(&o.Insecure, "insecure", o.Insecure, "connect processes on several hosts without certificates: anyone who can reach the port and read the network can join")
	set.BoolVar(&o.Sums, "sums", o.Sums, "compare the checksum of every tensor that a rank receives with that of what was sent, and likewise of gradients and weights that replicas read")
	set.IntVar(&o.Audit, "audit", o.Audit, "in every `n`-th step compute a microbatch again and compare the bits, and the weights of the replicas; 0: never")
	set.StringVar(&o.Folder, "run", o.Folder, "`folder` for the memory log, the losses and the page; default: a new one in runs/")
	set.StringVar(&o.Serve, "serve", o.Serve, "`address` at which to serve the page of the run during training; :8080 is reachable only from this host")
	set.StringVar(&o.TensorBoard, "tensorboard", o.TensorBoard, "`folder` for event files of TensorBoard")
	set.StringVar(&o.JSON, "json", o.JSON, "`file` for a summary in JSON; - is standard output")
	set.StringVar(&o.Checkpoint, "checkpoint", o.Checkpoint, "`folder` for checkpoints of weights and moments (safetensors and a manifest), written at intervals and at the end")
	set.Func("checkpoint-every", "`steps or time` between checkpoints, such as 100 or 10m; by default checkpoints take 1 % of the time, with at least a minute between them", o.checkpointEvery)
	set.IntVar(&o.Saver.Keep, "keep", 2, "number of checkpoints to keep; older ones are removed")
	set.StringVar(&o.Resume, "resume", o.Resume, "`folder` whose newest whole checkpoint the run resumes from, or a file written by an earlier version; it may be empty if it is also the folder of -checkpoint")
	return o
}

// Parse parses the flags of the set, and records which were given. It returns an error if the value of a flag is
// the name of another one, with a hyphen.
func (o *Options) Parse(args []string) error {
	if err := o.FlagSet.Parse(args); err != nil {
		return err
	}
	o.given = make(map[string]bool)
	var fault error
	o.FlagSet.Visit(func(f *flag.Flag) {
		o.given[f.Name] = true
		if value := f.Value.String(); strings.HasPrefix(value, "-") && o.FlagSet.Lookup(strings.TrimLeft(value, "-")) != nil {
			fault = errors.Join(fault, fmt.Errorf("-%s is followed by %s: give it a value", f.Name, value))
		}
	})
	return fault
}

// Given reports whether a flag was on the command line.
func (o *Options) Given(flag string) bool { return o.given[flag] }

// Value returns the value of a flag of the set.
func (o *Options) Value(flag string) string { return o.FlagSet.Lookup(flag).Value.String() }

// AllRanks returns the number of ranks of all replicas.
func (o *Options) AllRanks() int { return o.Ranks * o.Replicas }

// RunnerReplicas converts -replicas, -shard and -gathered to the runner's configuration.
func (o *Options) RunnerReplicas() runner.Replicas {
	return runner.Replicas{Count: o.Replicas, Shard: o.Shard, Gathered: o.Gathered}
}

// Deciding lists the job's flags whose values must be equal in all processes.
var Deciding = []string{"ranks", "replicas", "shard", "gathered", "stages", "plan", "group", "cap", "slices", "descending", "capacity", "offload", "audit"}

// Facts returns the values of flags for tcp.Config.Facts.
func (o *Options) Facts(flags ...string) (facts []tcp.Fact) {
	for _, name := range flags {
		facts = append(facts, tcp.Fact{Name: "-" + name, Value: o.Value(name)})
	}
	return facts
}

// Number returns an error if the value of a flag is less than least or greater than
// schedule.MaxMicrobatches.
func Number(flag string, value, least int) error {
	switch {
	case value > schedule.MaxMicrobatches:
		return fmt.Errorf("-%s is %d: give at most %d", flag, value, schedule.MaxMicrobatches)
	case value < least:
		return fmt.Errorf("-%s is %d: give at least %d", flag, value, least)
	}
	return nil
}

// maxRanks is the maximum number of ranks: each reserves address space for its own device.
const maxRanks = 64

// Validate reports every invalid option, and sets Pipeline and Priced. If all options are valid, it makes the plan as
// the runner does, so that the plan's faults are found before anything is written. parts is the
// number of parts of the model: by default, a single rank gets at most that many stages.
func (o *Options) Validate(parts int) error {
	if err := o.ReadPlan(); err != nil {
		return err
	}
	least := func(flag string) int { // for flags that default to 0
		if o.given[flag] {
			return 1
		}
		return 0
	}
	err := errors.Join(
		Number("ranks", o.Ranks, 1), Number("replicas", o.Replicas, 1), Number("gathered", o.Gathered, least("gathered")), Number("stages", o.Stages, least("stages")), Number("microbatches", o.Microbatches, 1),
		Number("group", o.Group, least("group")), Number("cap", o.Cap, least("cap")), Number("slices", o.Slices, least("slices")),
		Number("capacity", o.Capacity, schedule.Unlimited), Number("keep", o.Saver.Keep, 1), Number("audit", o.Audit, 0), o.files())
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			err = errors.Join(err, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Ranks > maxRanks, "-ranks is %d: give at most %d", o.Ranks, maxRanks)
	refuse(o.Ranks <= maxRanks && o.Replicas > maxRanks/max(o.Ranks, 1), "-replicas is %d, of %s each: give at most %d ranks in all", o.Replicas, units.Number(o.Ranks, "rank"), maxRanks)
	refuse(o.Shard < 0 || o.Shard > 3, "-shard is %d: give 0 to 3", o.Shard)
	refuse(o.Shard > 0 && o.Shard <= 3 && o.Replicas == 1, "-shard is for several replicas: give -replicas, or leave it out")
	refuse(o.Gathered > 0 && o.Shard != 3, "-gathered is for -shard 3: leave it out")
	refuse(o.Microbatches < o.Replicas && o.Microbatches > 0, "-microbatches is %d: give at least one for each of the %d replicas", o.Microbatches, o.Replicas)
	refuse(o.Launcher != "" && o.Launcher != "none", "-launcher is %q: give none, or leave it out", o.Launcher)
	refuse(o.Budget > 0 && o.Unplanned, "-budget is for planned memory: leave out -unplanned")
	refuse(!(o.Offload >= 0 && o.Offload <= 1), "-offload is %v: give a share from 0 to 1", o.Offload)
	refuse(o.OffloadTo != "" && o.Offload == 0, "-offload-to is the folder of -offload: give it, or leave out -offload-to")
	refuse(o.Sums && o.Ranks*o.Replicas == 1, "-sums compares what ranks send each other, and there is one: leave it out")
	refuse(o.Offload > 0 && o.Unplanned, "-offload is for planned memory: leave out -unplanned")
	if err = errors.Join(err, o.place(parts)); err != nil {
		return err
	}
	if o.Audit > 0 && (!o.AscendingBackward() || o.Placement.Copies > 1) {
		return fmt.Errorf("-audit needs gradients that are added in ascending order of microbatches, and %s adds them in an order of its own: leave it out", o.Plan)
	}
	if o.Group == 0 && o.Ranks == 1 {
		o.Group = 1 // the default of every plan
	}
	return o.prove()
}

// files returns an error for an empty folder, for flags that name the same file, and for checkpoint flags without a
// folder.
func (o *Options) files() error {
	var faults []error
	for _, folder := range [...]struct{ flag, path string }{{"checkpoint", o.Checkpoint}, {"resume", o.Resume}} {
		switch {
		case folder.path == "" && o.given[folder.flag]:
			faults = append(faults, fmt.Errorf("-%s is empty: name a folder of checkpoints, or leave it out", folder.flag))
		case folder.path != "" && o.JSON != "" && o.JSON != "-" && filepath.Clean(folder.path) == filepath.Clean(o.JSON):
			faults = append(faults, fmt.Errorf("-json and -%s name the same file: give -json another", folder.flag))
		}
	}
	for _, flag := range [...]string{"checkpoint-every", "keep"} {
		if o.given[flag] && o.Checkpoint == "" {
			faults = append(faults, fmt.Errorf("-%s needs a folder: give -checkpoint", flag))
		}
	}
	return errors.Join(faults...)
}

// CheckOutputs is called before the run, and returns the errors that would prevent it from writing its
// checkpoints and the file of -json.
func (o *Options) CheckOutputs() error {
	return errors.Join(Flag("checkpoint", cmp.Or(atomicfile.CheckFolder(o.Checkpoint), o.othersCheckpoints())), Flag("json", atomicfile.CheckFile(o.JSON)))
}

// Flag adds the name of a flag to its error. It returns nil for nil.
func Flag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("-%s: %w", name, err)
}

// WriteJSON writes a summary to the file of -json, or to stdout if that is "-". Without -json it writes nothing.
func (o *Options) WriteJSON(stdout io.Writer, summary any) error {
	if o.JSON == "" {
		return nil
	}
	return atomicfile.Emit(o.JSON, stdout, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(summary)
	})
}

// Describe returns a brief description of the plan.
func (o *Options) Describe() string {
	words := units.Number(o.Stages, "stage")
	if o.Ranks > 1 {
		words += fmt.Sprintf(" on %d ranks", o.Ranks)
	}
	if o.Replicas > 1 {
		words += fmt.Sprintf(" in each of %d replicas at shard level %d", o.Replicas, o.Shard)
	}
	words += ", " + o.Plan
	if o.Group > 1 {
		words += fmt.Sprintf(" in groups of %d", o.Group)
	}
	if o.Cap > 0 {
		words += fmt.Sprintf(" with at most %d in flight", o.Cap)
	}
	if o.Slices > 1 {
		words += fmt.Sprintf(" with %d slices a sequence", o.Slices)
	}
	if o.Descending {
		words += " descending"
	}
	return words
}

// List joins words with "or" before the last one.
func List(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
