// Train trains a small network, a convolutional classifier or a GPT, made of GoMLX's layers,
// through Weir or with GoMLX's own trainer, and prints the resources that it needed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/gomlx"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// example is a model and its data.
type example struct {
	config gomlx.Config
	input  string
	rows   int                                                  // per microbatch
	batch  func(first, rows int) (input, label *tensors.Tensor) // returns rows rows of data, starting at row first
	floor  string                                               // describes the loss that training must get below

	memory runner.Memory
	place  launch.Rendezvous // set if this process is one of several in a job
	ends   []*tcp.Endpoint[gomlx.T]
}

var examples = map[string]func() (example, error){"mlp": mlp, "images": images, "gpt": gpt}

func main() {
	name := flag.String("model", "gpt", "mlp, images or gpt")
	steps := flag.Int("steps", 20, "steps")
	microbatches := flag.Int("microbatches", 64, "microbatches of a step")
	plan := flag.String("plan", "depth-first", "schedule")
	ranks := flag.Int("ranks", 1, "ranks; at least one for each process under weir launch")
	trainer := flag.String("trainer", "weir", "weir, or GoMLX's own: accumulate, or batch for one big batch a step")
	var offload runner.Offload
	flag.Float64Var(&offload.Share, "offload", 0, "share of the saved bytes to keep in far memory, from 0 to 1")
	flag.StringVar(&offload.Folder, "offload-to", "", "folder of far memory; without one it is on the heap")
	flag.Parse()
	place, err := launch.Find(os.Getenv)
	if err == nil {
		err = run(context.Background(), place, offload, *name, *trainer, *plan, *ranks, *steps, *microbatches, os.Stdout)
	}
	if err != nil {
		log.Print(err)
		os.Exit(launch.ExitStatus(err))
	}
}

func run(ctx context.Context, place launch.Rendezvous, offload runner.Offload, name, trainer, plan string, ranks, steps, microbatches int, out io.Writer) error {
	launched := place.Launcher == launch.Weir
	if launched {
		ranks = max(ranks, place.Size)
	}
	ex, err := prepare(name, plan, ranks)
	if err != nil {
		return err
	}
	ex.memory.Offload = offload
	if offload.Share > 0 {
		if ex.memory.Profile, err = profile(ctx, name, plan, ranks); err != nil {
			return err
		}
	}
	if launched {
		defer ex.leave()
		ex.place = place
		ex.config.First = place.Rank * ranks / place.Size
		ex.config.Count = (place.Rank+1)*ranks/place.Size - ex.config.First
		if place.Rank > 0 { // all processes would print the same numbers
			out = io.Discard
		}
	}
	if ex.floor != "" {
		fmt.Fprintln(out, ex.floor)
	}
	step := ex.gomlx
	if trainer == "weir" {
		step = ex.weir
	}
	once, err := step(trainer, microbatches)
	if err != nil {
		return err
	}
	var used time.Duration
	for i := range steps {
		before := processor()
		says, err := once(ctx)
		if err != nil {
			return err
		}
		if i > 0 { // the first step compiles
			used += processor() - before
		}
		fmt.Fprintf(out, "step %2d  %s\n", i, says)
	}
	each := used / time.Duration(max(1, (steps-1)*microbatches))
	fmt.Fprintf(out, "%v of processors a microbatch; %s of the process at most\n", each.Round(time.Microsecond), peak())
	return nil
}

// prepare returns a model with its own store and backend.
func prepare(name, plan string, ranks int) (*example, error) {
	made, ok := examples[name]
	if !ok {
		return nil, fmt.Errorf("there is no model %q", name)
	}
	ex, err := made()
	if err != nil {
		return nil, err
	}
	cfg := &ex.config
	cfg.Schedule, cfg.Ranks = plan, ranks
	cfg.Store = model.NewStore()
	cfg.Store.SetParam(model.ParamInitialSeed, int64(7))
	cfg.Backend, err = gomlx.NewBackend("")
	return &ex, err
}

// profile records the stages of a separate model that has all ranks.
func profile(ctx context.Context, name, plan string, ranks int) (*layout.Profile, error) {
	ex, err := prepare(name, plan, ranks)
	if err != nil {
		return nil, err
	}
	m, err := gomlx.New(ex.config)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Profile(ctx)
}

// weir returns a function that runs a step with Weir.
func (ex *example) weir(_ string, microbatches int) (func(context.Context) (string, error), error) {
	m, err := gomlx.New(ex.config)
	if err != nil {
		return nil, err
	}
	cfg := m.Runner()
	cfg.Memory = ex.memory
	if len(cfg.Spaces) < m.Ranks {
		if err := ex.join(m); err != nil {
			return nil, err
		}
		cfg.Topology.Transport = func(rank int) transport.Transport[gomlx.T] { return ex.ends[rank-m.First] }
	}
	run, err := runner.New(cfg)
	if err != nil {
		return nil, err
	}
	source := m.Dataset(ex.batches(ex.rows), ex.input)
	return func(ctx context.Context) (string, error) {
		step, err := run.Step(ctx, microbatches, source)
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("loss %.4f", step.Loss("loss"))
		for name := range ex.config.Metrics {
			text += fmt.Sprintf("  %s %.3f", name, step.Loss(name))
		}
		if step.FarPeak > 0 {
			text += "  far peak " + size(step.FarPeak)
		}
		var inside int64
		programs, _ := m.Programs()
		for _, p := range programs {
			inside = max(inside, p.Forward, p.Backward, p.Input, p.Weight)
		}
		return fmt.Sprintf("%s  peak %s and %s inside an execution  growth per microbatch %v", text, size(step.Peak), size(inside), step.Growth), step.Update(m.Update)
	}, nil
}

// join joins the ranks of this process to those of the others.
func (ex *example) join(m *gomlx.Model) error {
	ex.ends = make([]*tcp.Endpoint[gomlx.T], m.Count)
	faults := make([]error, m.Count)
	var all sync.WaitGroup
	for i := range m.Count {
		all.Go(func() {
			rank := m.First + i
			cfg := tcp.Config{Address: ex.place.Address, Token: ex.place.Token, Rank: rank, Ranks: m.Ranks, Capacity: 1}
			ex.ends[i], faults[i] = tcp.Join(context.Background(), cfg, m.Devices[rank])
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// leave ends the job. The processes wait for each other.
func (ex *example) leave() {
	var all sync.WaitGroup
	for _, end := range ex.ends {
		if end != nil {
			all.Go(func() { _ = end.Close() }) // the steps are over
		}
	}
	all.Wait()
}

// gomlx returns a function that runs a step of GoMLX's trainer, over the same rows.
func (ex *example) gomlx(trainer string, microbatches int) (func(context.Context) (string, error), error) {
	cfg := ex.config
	whole := func(scope *model.Scope, _ any, x []*graph.Node) []*graph.Node {
		for _, s := range cfg.Stages {
			x = s.Graph(scope.Store().RootScope(), x)
		}
		return x
	}
	tr := train.NewTrainer(cfg.Backend, cfg.Store, whole, cfg.Loss, cfg.Optimizer, nil, nil)
	rows, times := ex.rows*microbatches, 1
	if trainer == "accumulate" {
		rows, times = ex.rows, microbatches
		if err := tr.AccumulateGradients(microbatches); err != nil {
			return nil, err
		}
	}
	next, _ := iter.Pull2(ex.batches(rows).Iter())
	return func(context.Context) (string, error) {
		cfg.Backend.Model().ResetPeak()
		var sum float64
		for range times {
			batch, err, _ := next()
			if err != nil {
				return "", err
			}
			metrics, err := tr.TrainStep(batch)
			if err != nil {
				return "", err
			}
			sum += float64(tensors.ToScalar[float32](metrics[0]))
			for _, t := range metrics {
				err = errors.Join(err, t.FinalizeAll())
			}
			if err = errors.Join(err, batch.Finalize()); err != nil {
				return "", err
			}
		}
		var stats memory.Stats
		cfg.Backend.Model().Stats(&stats)
		return fmt.Sprintf("loss %.4f  peak %s between executions", sum/float64(times), size(stats.Peak)), nil
	}, nil
}

// endless is an infinite GoMLX dataset.
type endless struct {
	rows int
	make func(first, rows int) (input, label *tensors.Tensor)
}

func (ex *example) batches(rows int) train.Dataset { return endless{rows, ex.batch} }

func (endless) Name() string { return "endless" }

func (e endless) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for first := 0; ; first += e.rows {
			x, y := e.make(first, e.rows)
			if !yield(train.Batch{Inputs: []*tensors.Tensor{x}, Labels: []*tensors.Tensor{y}}, nil) {
				return
			}
		}
	}
}

func size(bytes int64) string { return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20)) }

// processor returns the processor time of the process.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak returns the peak memory of the process, as Linux reports it, or "" on other systems.
func peak() string {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}
