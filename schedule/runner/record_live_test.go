package runner_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
)

// unreclaimed is a space that cannot reclaim: every reference must be released.
type unreclaimed struct {
	memory.Space[buffer]
	memory.Watched[buffer]
}

// duo has two stages on two ranks with one device each. The first returns two tensors of one and
// two elements, the last returns none; gradients have the sizes of their tensors.
type duo struct {
	t       *testing.T
	devices [2]kernels.Compute
	config  runner.Config[buffer]
	mu      sync.Mutex         // guards live
	live    map[string][]int64 // by rank, at the beginning of each call
	fails   string             // the call that fails after its allocations
	copies  int                // number of copies made
	refuses int                // the number of the copy that fails, or 0
	between func()             // called before every copy
}

func newDuo(t *testing.T) *duo {
	d := &duo{t: t, live: map[string][]int64{}, between: func() {}}
	ports := []stages.Port{{Name: "one"}, {Name: "two"}}
	both := make([]stages.Stage[buffer], 2)
	for rank, name := range []string{"first", "last"} {
		d.devices[rank] = device(t, true)
		grad := d.alloc(rank, memory.Resident, 1)
		stage := &stages.Func[buffer]{
			Declares:   stages.Spec{Name: name, Slots: []string{"x"}},
			Parameters: []batchctx.Use[buffer]{{Name: name + ".w", Grad: grad, Contributes: batchctx.Sometimes}},
		}
		if rank == 0 {
			stage.Declares.Outputs = ports
		} else {
			stage.Declares.Inputs = ports
		}
		stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, out []buffer) error {
			if rank == 1 {
				out = nil
			}
			return d.call(rank, name+" F", mb, out, memory.Activation)
		}
		stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, gradIn []buffer) error {
			return d.call(rank, name+" B", mb, gradIn, memory.ActGrad)
		}
		both[rank] = &parted{stage, d, rank}
	}
	d.config = runner.Config[buffer]{
		Stages: both, Gradients: d.devices[0], Losses: objective, Schedule: "1f1b",
		Topology: runner.Topology[buffer]{Copy: d.copy, Capacity: 1},
	}
	for _, dev := range d.devices {
		d.config.Spaces = append(d.config.Spaces, unreclaimed{dev, dev.(memory.Watched[buffer])})
	}
	return d
}

// parted is a stage of duo that can split its backward.
type parted struct {
	*stages.Func[buffer]
	duo  *duo
	rank int
}

func (s *parted) BackwardInput(_ context.Context, mb batchctx.Microbatch[buffer], _, gradIn []buffer) error {
	return s.duo.call(s.rank, s.Declares.Name+" I", mb, gradIn, memory.ActGrad)
}

func (s *parted) BackwardWeight(_ context.Context, mb batchctx.Microbatch[buffer]) error {
	return s.duo.call(s.rank, s.Declares.Name+" W", mb, nil, 0)
}

func (d *duo) alloc(rank int, class memory.Class, n int) buffer {
	b, err := d.devices[rank].Alloc(class, kernels.Float32, n)
	require.NoError(d.t, err)
	return b
}

// call runs the body of a stage's call: it allocates one and two elements.
func (d *duo) call(rank int, name string, mb batchctx.Microbatch[buffer], made []buffer, class memory.Class) error {
	d.mu.Lock()
	d.live[name] = append(d.live[name], d.devices[rank].Live())
	d.mu.Unlock()
	for i := range made {
		made[i] = d.alloc(rank, class, i+1)
	}
	if d.fails == name {
		return errors.New("it fails")
	}
	if d.fails == name+" halfway" && len(made) > 0 {
		mb.Release(made[0])
		made[0] = buffer{}
	}
	return nil
}

// copy copies to the other rank's device.
func (d *duo) copy(from, to int, b buffer) (buffer, error) {
	d.between()
	if d.copies++; d.copies == d.refuses {
		return buffer{}, errors.New("no copy")
	}
	return d.alloc(to, d.devices[from].Class(b), b.N), nil
}

func (d *duo) record() error {
	nothing := runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return nil })
	_, err := record.Stages(d.t.Context(), d.config,
		record.Shape[buffer]{Name: "any", Source: nothing})
	return err
}

// bare requires that both devices hold their gradient and nothing else.
func (d *duo) bare() {
	d.t.Helper()
	for rank, dev := range d.devices {
		require.EqualValues(d.t, 4, dev.Live(), "rank %d", rank)
	}
}

// A dry run holds at every call the same bytes as a step with one microbatch: a rank releases a
// tensor once it is copied, and the other rank releases the copy with the action that reads it.
func TestRecordHoldsNoMore(t *testing.T) {
	d := newDuo(t)
	require.NoError(t, d.record())
	// Three passes through the stages: with a whole backward, with a split one, and forward only.
	require.Equal(t, map[string][]int64{
		"first F": {4, 4, 4}, "last F": {4 + 12, 4 + 12, 4 + 12},
		"last B": {4}, "first B": {4 + 12},
		"last I": {4}, "first I": {4 + 12}, "last W": {4}, "first W": {4},
	}, d.live)
	d.bare()
}

// The results of the last stage, and the gradients at the first stage, are released with the
// call.
func TestRecordEndsOutputs(t *testing.T) {
	d := newDeviced(device(t, true))
	d.stage.Declares.Outputs = []stages.Port{{Name: "y"}}
	d.stage.ForwardFunc = func(_ context.Context, _ batchctx.Microbatch[buffer], _, out []buffer) error {
		out[0] = d.alloc(memory.Activation, 3)
		return nil
	}
	d.stage.BackwardFunc = func(context.Context, batchctx.Microbatch[buffer], []buffer, []buffer) error {
		require.EqualValues(t, 4+16, d.dev.Live(), "the gradient and the part")
		return nil
	}
	_, err := d.record()
	require.NoError(t, err)
	require.EqualValues(t, 4, d.dev.Live())
}

// The allocations of a failed call, and tensors in transit, are released.
func TestRecordReleasesAfterErrors(t *testing.T) {
	for _, fails := range []string{"first F", "last F", "last B", "first B"} {
		t.Run(fails, func(t *testing.T) {
			d := newDuo(t)
			d.fails = fails
			require.ErrorContains(t, d.record(), "it fails")
			d.bare()
		})
	}
	for fails, says := range map[string]string{ // the error names the stage that failed to make it, not the one that needs it
		"first F halfway": "stage 0 (first) F: the stage set no output 0 (one): set out[0] in Forward: ",
		"last B halfway":  "stage 1 (last) B: the stage set no gradient of input 0 (one): set gradIn[0] in the backward: ",
		"last I halfway":  "stage 1 (last) I: the stage set no gradient of input 0 (one): set gradIn[0] in the backward: ",
	} {
		t.Run(fails, func(t *testing.T) {
			d := newDuo(t)
			d.fails = fails
			err := d.record()
			require.ErrorIs(t, err, batchctx.ErrMissing)
			require.ErrorContains(t, err, says)
			d.bare()
		})
	}
	for refuses := 1; refuses <= 4; refuses++ {
		d := newDuo(t)
		d.refuses = refuses
		require.ErrorContains(t, d.record(), "no copy")
		d.bare()
	}
}

// A view ends with its call, even in a dry run.
func TestRecordEndsViews(t *testing.T) {
	d, asked := newDuo(t), 0
	var kept batchctx.Microbatch[buffer]
	first := d.config.Stages[0].(*parted)
	forward := first.ForwardFunc
	first.ForwardFunc = func(ctx context.Context, mb batchctx.Microbatch[buffer], in, out []buffer) error {
		kept = mb
		return forward(ctx, mb, in, out)
	}
	d.between = func() {
		asked++
		kept.GradFirst(1)
	}
	require.ErrorIs(t, d.record(), batchctx.ErrEnded)
	require.Positive(t, asked)
}

// unlaid is a device whose first layout ends with an error, as with -tags invariants if a step
// has written outside of all buffers.
type unlaid struct {
	*kernels.Null
	err error
}

func (u *unlaid) SetLayout(l *memory.Layout) error {
	err := u.Null.SetLayout(l)
	if l == nil {
		err, u.err = errors.Join(err, u.err), nil
	}
	return err
}

// A step that has ended on all ranks counts on all, even if a rank fails afterwards: the next
// step works (L8).
func TestAStepCountsOnAllRanks(t *testing.T) {
	d := newDuo(t)
	nothing := runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return nil })
	profile, err := record.Stages(t.Context(), d.config, record.Shape[buffer]{Name: "any", Source: nothing})
	require.NoError(t, err)
	written := errors.New("written outside of all buffers")
	for failing := range 2 {
		cfg := d.config
		cfg.Memory.Profile, cfg.Spaces, cfg.Gradients = profile, nil, nil
		cfg.Topology.Copy = func(_, to int, b buffer) (buffer, error) { return d.alloc(to, memory.Transfer, b.N), nil }
		for rank := range d.devices {
			dev := &unlaid{Null: d.devices[rank].(*kernels.Null)}
			if rank == failing {
				dev.err = written
			}
			cfg.Spaces = append(cfg.Spaces, dev)
		}
		g := newRunner(t, cfg)
		_, err = g.Step(t.Context(), 3, nothing)
		require.ErrorIs(t, err, written)
		result := runStep(t, g, 3, nothing)
		require.True(t, result.Planned)
		require.EqualValues(t, 1, result.Step)
		require.NoError(t, g.Close())
	}
}
