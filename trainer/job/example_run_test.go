package job_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/safetensors"
	"github.com/weir-ml/weir/transport"
)

type T = kernels.Buffer

// line trains y = 3x, with one weight on one rank.
type line struct {
	*job.Session
	dev          *kernels.Host
	weight, grad T
	run          *runner.Runner[T]
}

func (l *line) Check(context.Context) error { return l.Validate(1) }

func (l *line) Build(ctx context.Context) (err error) {
	var errs [3]error
	l.dev, errs[0] = kernels.NewHost(kernels.HostConfig{})
	l.weight, errs[1] = l.dev.Floats(memory.Resident, 0)
	l.grad, errs[2] = l.dev.Floats(memory.Resident, 0)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if err := l.Process.Join(ctx, []job.Local{l.dev}); err != nil {
		return err
	}
	var d stages.Decl[T]
	point, slope, miss, w := d.Part("point"), d.Slot("slope"), d.Loss("error"), d.Param("weight", l.grad)
	stage := d.Stage("line", func(_ context.Context, mb batchctx.Microbatch[T], _, _ []T) error {
		p := l.dev.Float32s(mb.Part(point))
		e := l.dev.Float32s(l.weight)[0]*p[0] - p[1]
		mb.Loss(miss, float64(e*e/2), 1)
		mb.Save(slope, mb.Must(l.dev.Floats(memory.Saved, e*p[0])))
		return nil
	}, func(_ context.Context, mb batchctx.Microbatch[T], _, _ []T) error {
		if g, trains := mb.Grad(w); trains {
			l.dev.Float32s(g)[0] += mb.LossSeed(miss) * l.dev.Float32s(mb.Take(slope))[0]
		}
		return nil
	})
	l.run, err = runner.New(runner.Config[T]{
		Stages: []stages.Stage[T]{stage}, Spaces: runner.Spaces(l.dev), Topology: l.Process.RunnerTopology(), FirstStep: int64(l.Done),
	})
	return err
}

func (l *line) Restore(c *checkpoint.Checkpoint) error {
	return checkpoint.Read(c, "weight", []int{1}, l.dev.Float32s(l.weight))
}

func (l *line) Begin(context.Context) error { return nil }
func (l *line) Start(context.Context) error { return nil }

func (l *line) Step(ctx context.Context) error {
	result, err := l.run.Step(ctx, l.Microbatches, runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
		x := float32(e.Index()%7) - 3
		e.Put("point", e.Must(l.dev.Floats(memory.Entry, x, 3*x)))
		return nil
	}))
	if err != nil {
		return err
	}
	return result.Update(func(factor float64) error {
		l.dev.Float32s(l.weight)[0] -= 0.2 * float32(factor) * l.dev.Float32s(l.grad)[0]
		return nil
	})
}

func (l *line) State() (checkpoint.State, []checkpoint.Piece, error) {
	return checkpoint.State{Step: int64(l.Done)}, checkpoint.Whole(safetensors.Of("weight", []int{1}, l.dev.Float32s(l.weight))), nil
}

func (l *line) Stepped(context.Context) error { return nil }

func (l *line) End(_ error, saved bool) error {
	fmt.Printf("steps %d to %d, weight %.2f, saved: %v\n", l.First, l.Done, l.dev.Float32s(l.weight)[0], saved)
	return nil
}

func (l *line) Statuses() []transport.RankStatus { return l.run.Statuses() }

// A run that is interrupted before its first step is done does not say that everything is written.
func TestInterruptedBeforeAStep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	set := flag.NewFlagSet("line", flag.ContinueOnError)
	steps := 2
	l := &line{Session: &job.Session{Options: job.Flags(set), Steps: &steps, Say: func(string) {}}}
	saved := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, l.Parse([]string{"-checkpoint", saved}))
	err := l.Run(ctx, interrupting{l, cancel})
	require.ErrorIs(t, err, job.ErrInterrupted)
	require.ErrorContains(t, err, "after step 0 of 2: the results are written, but no checkpoint")
	require.NoDirExists(t, saved)
	require.NoError(t, errors.Join(l.run.Close(), l.dev.Close()))
}

// interrupting is a line whose context ends before its first step.
type interrupting struct {
	*line
	interrupt func()
}

func (i interrupting) Start(context.Context) error {
	i.interrupt()
	return nil
}

// An interrupt before the first step does not hide an error. Run reports that nothing was written only if the
// preparation ended because of the interrupt, and before Begin.
func TestInterruptedPreparation(t *testing.T) {
	const written = "interrupted before the first step: nothing was written"
	for name, test := range map[string]struct {
		check, begin func(ctx context.Context) error
		want         string
	}{
		"Check ends with the context":          {context.Context.Err, nil, written},
		"Check fails":                          {func(context.Context) error { return os.ErrInvalid }, nil, "interrupted before the first step: invalid argument"},
		"between the preparation and Begin":    {nil, nil, written},
		"Begin ends with the context":          {nil, context.Context.Err, "interrupted before the first step: context canceled"},
		"Begin fails, with its outputs opened": {nil, func(context.Context) error { return os.ErrExist }, "interrupted before the first step: file already exists"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 2
		l := &line{Session: &job.Session{Options: job.Flags(flag.NewFlagSet("line", flag.ContinueOnError)), Steps: &steps, Say: func(string) {}}}
		require.NoError(t, l.Parse(nil))
		err := l.Run(ctx, &unprepared{l, cancel, test.check, test.begin})
		require.EqualError(t, err, test.want, name)
		require.ErrorIs(t, err, job.ErrInterrupted, name)
		if l.dev != nil {
			require.NoError(t, errors.Join(l.run.Close(), l.dev.Close()))
		}
	}
}

// unprepared is a line whose context ends in check or in begin or, if both are nil, at the end of Build.
type unprepared struct {
	*line
	interrupt    func()
	check, begin func(ctx context.Context) error
}

func (u *unprepared) Check(ctx context.Context) error {
	if u.check == nil {
		return u.line.Check(ctx)
	}
	u.interrupt()
	return u.check(ctx)
}

func (u *unprepared) Build(ctx context.Context) error {
	err := u.line.Build(ctx)
	if u.begin == nil {
		u.interrupt()
	}
	return err
}

func (u *unprepared) Begin(ctx context.Context) error {
	u.interrupt()
	return u.begin(ctx)
}

// The same command begins a run, and resumes it from its last checkpoint.
func ExampleSession_Run() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	saved := filepath.Join(dir, "saved")
	for _, total := range []string{"2", "4", "4"} {
		set := flag.NewFlagSet("line", flag.ContinueOnError)
		steps := set.Int("steps", 10, "optimizer steps")
		l := &line{Session: &job.Session{
			Options: job.Flags(set), Deciding: []string{"microbatches"}, Steps: steps, Say: func(text string) { fmt.Println(text) },
		}}
		if err := l.Parse([]string{"-steps", total, "-microbatches", "4096", "-checkpoint", saved, "-resume", saved}); err != nil {
			fmt.Println(err)
			return
		}
		if err := errors.Join(l.Run(context.Background(), l), l.run.Close(), l.dev.Close()); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// steps 0 to 2, weight 2.88, saved: true
	// steps 2 to 4, weight 3.00, saved: true
	// steps 4 to 4, weight 3.00, saved: true
}
