package job

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/safetensors"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// The nil Process is the only process: every method works on it.
func TestNilProcess(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var w *Process
	value := reflect.ValueOf(w)
	for i := range value.NumMethod() {
		method := value.Type().Method(i)
		t.Run(method.Name, func(t *testing.T) {
			var args []reflect.Value
			for k := 1; k < method.Type.NumIn(); k++ {
				of := method.Type.In(k)
				switch {
				case method.Type.IsVariadic() && k == method.Type.NumIn()-1:
				case of == reflect.TypeFor[context.Context]():
					args = append(args, reflect.ValueOf(t.Context()))
				case of == reflect.TypeFor[*metrics.Recorder]():
					args = append(args, reflect.ValueOf(metrics.New(1)))
				case of.Kind() == reflect.Func:
					args = append(args, reflect.MakeFunc(of, func([]reflect.Value) (results []reflect.Value) {
						for result := range of.Outs() {
							results = append(results, reflect.Zero(result))
						}
						return results
					}))
				default:
					args = append(args, reflect.Zero(of))
				}
			}
			for _, result := range value.Method(i).Call(args) {
				if err, is := result.Interface().(error); is {
					require.NoError(t, err)
				}
				if stop, is := result.Interface().(func()); is {
					stop()
				}
			}
		})
	}
}

// worlds returns the joined processes of a job with one rank each.
func worlds(t *testing.T, processes int) []*Process {
	t.Helper()
	all := apart(t, processes)
	for _, err := range join(t, all, make([]kernels.Instructions, processes)...) {
		require.NoError(t, err)
	}
	t.Cleanup(func() { each(all, (*Process).Close) })
	return all
}

// apart returns processes that have not joined.
func apart(t *testing.T, processes int) (all []*Process) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	for i := range processes {
		all = append(all, &Process{
			Processes: processes, process: i, First: i, Count: 1, ranks: processes, pipeline: processes,
			meeting: tcp.Config{Address: address}, say: func(string) {},
		})
	}
	return all
}

// join joins processes that compute with different instructions.
func join(t *testing.T, all []*Process, instructions ...kernels.Instructions) []error {
	return each(all, func(w *Process) error {
		host, err := kernels.NewHost(kernels.HostConfig{Instructions: instructions[w.process]})
		if err != nil {
			return err
		}
		t.Cleanup(func() { require.NoError(t, host.Close()) })
		return w.Join(t.Context(), []Local{host})
	})
}

// Plain Go and assembly give different bits, so a job with both could not keep the promises about bits.
func TestPlainGoDoesNotJoinAssembly(t *testing.T) {
	if !slices.ContainsFunc([]kernels.Instructions{kernels.AVX2, kernels.NEON}, kernels.Instructions.Available) {
		t.Skip("there is plain Go alone")
	}
	for _, err := range join(t, apart(t, 2), kernels.BestInstructions, kernels.Portable) {
		require.ErrorIs(t, err, tcp.ErrRefused)
		require.ErrorContains(t, err, "the device is host in plain Go on rank 1 and host on rank 0: start all ranks with the same one")
	}
}

// each calls f for all processes concurrently.
func each(all []*Process, f func(w *Process) error) []error {
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for i, w := range all {
		done.Go(func() { errs[i] = f(w) })
	}
	done.Wait()
	return errs
}

// steps runs a step of both processes, in which process 1 has some microbatches. If fails is not
// nil, process 1 fails, and steps requires an error of both.
func steps(t *testing.T, all []*Process, runs []*metrics.Recorder, number int64, microbatches int, fails error) {
	t.Helper()
	for process, err := range each(all, func(w *Process) error {
		run := runs[w.process]
		_, err := run.Step(func() (*runner.Result, error) {
			return w.Step(t.Context(), run, func() (*runner.Result, error) {
				if err := w.ends[0].Begin(t.Context(), nil); err != nil {
					return nil, err
				}
				for m := range microbatches * w.process {
					w.Hooks(run).Microbatch(&memory.Sample{Rank: 1, Step: number, Microbatch: m, Peak: int64(m % 1000), Growth: 1, WaitData: 2})
				}
				if fails != nil && w.process == 1 {
					w.ends[0].Abort(fails)
					return nil, fails
				}
				_, err := w.ends[0].Exchange(t.Context(), nil)
				return new(runner.Result), err
			})
		})
		return err
	}) {
		require.Equal(t, fails != nil, err != nil, "process %d: %v", process, err)
	}
}

// The samples of a failed step are dropped with it. A process keeps a bounded number of samples for any number
// of microbatches (L7). The remaining samples cover all microbatches.
func TestSamples(t *testing.T) {
	all := worlds(t, 2)
	var log strings.Builder
	runs := []*metrics.Recorder{metrics.New(2), metrics.New(2)}
	for i, run := range runs {
		cfg := metrics.Config{Spaces: []metrics.Space{nothing{}, nothing{}}}
		if i == 0 {
			cfg.Log = &log
		}
		run.Begin(cfg)
	}
	steps(t, all, runs, 7, 3, errors.New("a stage failed"))
	require.Empty(t, all[1].samples)
	steps(t, all, runs, 8, 2, nil)
	require.NotContains(t, log.String(), `"step":7`)
	require.Equal(t, 2, strings.Count(log.String(), `"step":8`))
	steps(t, all, runs, 9, 3*maxSamples+1, nil)
	require.LessOrEqual(t, cap(all[1].samples), 2*maxSamples)
	lines := strings.Count(log.String(), `"step":9`)
	require.Greater(t, lines, maxSamples/2)
	require.LessOrEqual(t, lines, maxSamples)
}

// nothing is an empty space.
type nothing struct{}

func (nothing) ResetPeak()                 {}
func (nothing) Stats(*memory.Stats)        {}
func (nothing) Live() int64                { return 0 }
func (nothing) All() iter.Seq[memory.Info] { return func(func(memory.Info) bool) {} }

// A sample that replaces two covers both.
func TestHalve(t *testing.T) {
	samples := []memory.Sample{
		{Rank: 1, Microbatch: 0, Peak: 9, PeakPlanned: 9, Growth: 1, WaitData: 5, Live: 3, FarPeak: 2},
		{Rank: 2, Microbatch: 0, Peak: 1},
		{Rank: 1, Microbatch: 1, Peak: 4, PeakPlanned: 4, Growth: 2, WaitData: 6, Live: 8, Excess: 3},
		{Rank: 2, Microbatch: 1, Peak: 7},
		{Rank: 1, Microbatch: 2, Peak: 5},
	}
	require.Equal(t, []memory.Sample{
		{Rank: 1, Microbatch: 1, Peak: 9, PeakPlanned: 9, Growth: 3, WaitData: 11, Live: 8, Excess: 3, FarPeak: 2},
		{Rank: 2, Microbatch: 1, Peak: 7},
		{Rank: 1, Microbatch: 2, Peak: 5},
	}, halve(samples))
}

// saving returns the options of a process that writes checkpoints into a folder.
func saving(t *testing.T, dir string) *Options {
	t.Helper()
	o := Flags(flag.NewFlagSet("", flag.ContinueOnError))
	require.NoError(t, o.Parse([]string{"-checkpoint", dir}))
	return o
}

// A checkpoint that fails in one process, or when it is committed, leaves no file of any process. An earlier
// committed checkpoint stays, even one of the same step.
func TestFailedCheckpointLeavesNothing(t *testing.T) {
	const processes = 3
	all := worlds(t, processes)
	for _, err := range each(all, func(w *Process) error { return w.ends[0].Begin(t.Context(), nil) }) {
		require.NoError(t, err)
	}
	dir := filepath.Join(t.TempDir(), "saved")
	planted := errors.New("planted")
	save := func(step int64, fails int, same bool) []error {
		return each(all, func(w *Process) error {
			name := fmt.Sprint("tensor", w.process)
			if same {
				name = "tensor" // two shards have it, so that Commit fails
			}
			piece := checkpoint.Range(name, []int{2}, 0, 2, func() ([]float32, error) {
				if w.process == fails {
					return nil, planted
				}
				return []float32{1, 2}, nil
			})
			return saving(t, dir).Save(w, checkpoint.State{Step: step}, nil, piece)
		})
	}
	files := func() (names []string) {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names = append(names, path)
			}
			return nil
		}))
		return names
	}
	for fails := range processes {
		for process, err := range save(1, fails, false) {
			require.ErrorContains(t, err, "planted", "process %d", process)
		}
		require.NoDirExists(t, dir)
	}
	for _, err := range save(1, -1, true) {
		require.ErrorContains(t, err, "is in two shards")
	}
	require.NoDirExists(t, dir)
	for _, err := range save(1, -1, false) {
		require.NoError(t, err)
	}
	want := files()
	require.Len(t, want, processes+2)
	for _, step := range []int64{1, 2} {
		save(step, 1, false)
		save(step, -1, true)
		require.Equal(t, want, files())
	}
	c, passed, err := checkpoint.Newest(dir)
	require.NoError(t, errors.Join(err, passed))
	require.NoError(t, errors.Join(c.Verify(), c.Close()))
}

// A State needs no metadata, and Save does not change the caller's.
func TestSaveLeavesTheMetadata(t *testing.T) {
	for _, metadata := range []map[string]string{nil, {"data": "a"}} {
		o := saving(t, t.TempDir())
		require.NoError(t, o.Save(nil, checkpoint.State{Step: 2, Metadata: metadata}, []string{"plan"}, checkpoint.Whole(safetensors.Of("w", []int{1}, []float32{1}))...))
		require.NotContains(t, metadata, keyFlag+"plan")
	}
}

// When one process ends the run, all processes end it in the same way within seconds, whatever they are doing.
func TestAgreeOnEnd(t *testing.T) {
	step := func(w *Process) error {
		if err := w.ends[0].Begin(context.Background(), []byte("a step")); err != nil {
			return err
		}
		_, err := w.ends[0].Exchange(context.Background(), nil)
		return err
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	failure := errors.New("the disk is full")
	for name, test := range map[string]struct {
		ctx   context.Context // of process 0
		err   error           // of process 0
		other func(w *Process) error
		want  [2]string
	}{
		"all is done":                               {t.Context(), nil, func(*Process) error { return nil }, [2]string{}},
		"interrupted, the other begins a step":      {stopped, context.Canceled, step, [2]string{"interrupted", "interrupted"}},
		"interrupted, the other is done":            {stopped, context.Canceled, func(*Process) error { return nil }, [2]string{"interrupted", "interrupted"}},
		"interrupted, the other exchanges":          {stopped, context.Canceled, func(w *Process) error { _, err := w.Agree(t.Context(), true); return err }, [2]string{"interrupted", "interrupted"}},
		"failed, the other begins a step":           {t.Context(), failure, step, [2]string{"the disk is full", "rank 0: the disk is full"}},
		"failed, the other exchanges":               {t.Context(), failure, func(w *Process) error { _, err := w.Agree(t.Context(), true); return err }, [2]string{"the disk is full", "the disk is full"}},
		"failed while it is interrupted":            {stopped, failure, step, [2]string{"the disk is full", "rank 0: the disk is full"}},
		"interrupted, and the other fails":          {stopped, context.Canceled, func(*Process) error { return failure }, [2]string{"rank 1: the disk is full", "the disk is full"}},
		"the steps differ":                          {t.Context(), fmt.Errorf("%w: a and b", transport.ErrRanks), func(*Process) error { return fmt.Errorf("%w: a and b", transport.ErrRanks) }, [2]string{"do not run the same step: a and b", "do not run the same step: a and b"}},
		"interrupted, the other fails beginning it": {stopped, context.Canceled, func(w *Process) error { return errors.Join(w.ends[0].Begin(t.Context(), nil), abort(w, failure)) }, [2]string{"rank 1: the disk is full", "the disk is full"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := worlds(t, 2)
			for _, err := range each(all, step) {
				require.NoError(t, err)
			}
			began := time.Now()
			errs := each(all, func(w *Process) error {
				if w.process == 0 {
					return w.AgreeOnEnd(test.ctx, 5, test.err)
				}
				return w.AgreeOnEnd(t.Context(), 5, test.other(w))
			})
			require.Less(t, time.Since(began), time.Minute)
			for process, want := range test.want {
				if want == "" {
					require.NoError(t, errs[process])
				} else {
					require.ErrorContains(t, errs[process], want)
				}
				require.Equal(t, want == "interrupted", errors.Is(errs[process], ErrInterrupted))
			}
		})
	}
}

// abort aborts the step of a process, and returns the cause.
func abort(w *Process, cause error) error {
	w.ends[0].Abort(cause)
	return cause
}

// A run that resumes itself uses its folder again, and keeps the files of its earlier attempts. Other
// runs, and attempts that still write, are errors.
func TestFolderOfARunThatResumes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run [1]")
	open := func(args ...string) (*Folder, error) {
		o := Flags(flag.NewFlagSet("", flag.ContinueOnError))
		require.NoError(t, o.Parse(append([]string{"-run", dir}, args...)))
		return o.OpenFolder(time.Now())
	}
	resumes := []string{"-checkpoint", "c", "-resume", "./c"}
	killed, err := open(resumes...)
	require.NoError(t, err)
	require.NoError(t, killed.Start(metrics.Score{}))
	_, err = open(resumes...)
	require.ErrorContains(t, err, "losses.csv.partial is being written by another process")
	require.NoError(t, killed.Discard())
	require.NoError(t, os.MkdirAll(dir, 0o777))
	for _, left := range []string{"memory.jsonl.partial", "losses.csv.partial", "failure.rank1.jsonl", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, left), nil, 0o600))
	}
	for _, args := range [][]string{nil, {"-checkpoint", "c"}, {"-checkpoint", "c", "-resume", "d"}} {
		_, err = open(args...)
		require.ErrorContains(t, err, "exists: name another folder with -run")
	}
	for n := 1; n < 3; n++ {
		again, err := open(resumes...)
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(dir, "notes.txt"))
		require.NoError(t, again.Start(metrics.Score{}))
		require.NoError(t, again.Finish(func(to io.Writer) error { return nil }))
	}
	for _, name := range []string{"memory.jsonl", "losses.csv", "report.html", "earlier-1/losses.csv.partial", "earlier-1/failure.rank1.jsonl", "earlier-2/report.html"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
}
