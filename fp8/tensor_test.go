package fp8_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// place is a device, with a stage's view and its slots, in which tensors are saved.
type place struct {
	*kernels.Host
	frames *frames.Frames[kernels.Buffer]
}

func newPlace(t *testing.T) *place {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, host.Live(), "bytes that were not released")
		require.NoError(t, host.Close())
	})
	f := frames.New(frames.Config[kernels.Buffer]{Space: host, Stages: []*frames.Declaration[kernels.Buffer]{{Name: "stage", Slots: []string{"0", "1", "2", "3", "4", "5", "6", "7"}}}})
	f.Begin(0, batchctx.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1}}})
	require.NoError(t, f.Open(0, 0, nil))
	return &place{host, f}
}

// in returns the view of a call.
func (p *place) in(call frames.Call) fp8.MB { return fp8.MB(p.frames.Call(0, 0, call).View()) }

var shape = fp8.Shape{Name: "block0.qkv.input", Rows: 5, Cols: 32, Encoding: kernels.Encoding{Format: fp8.E4M3, Scaling: kernels.PerTensor}}

// tensor returns a tensor with the given halves.
func (p *place) tensor(t *testing.T, usage fp8.Usage) fp8.Tensor {
	t.Helper()
	var halves [2]kernels.Buffer
	for i, half := range []fp8.Usage{fp8.Rowwise, fp8.Columnwise} {
		if usage&half != 0 {
			var err error
			halves[i], err = p.Alloc(memory.FP8, kernels.Uint8, shape.Bytes(half))
			require.NoError(t, err)
		}
	}
	return fp8.NewTensor(shape, halves[0], halves[1])
}

// Keep releases the other half immediately.
func TestKeep(t *testing.T) {
	p := newPlace(t)
	mb := p.in(frames.InForward)
	x := p.tensor(t, fp8.Rowwise|fp8.Columnwise)
	both := p.Live()
	row, err := x.Rowwise()
	require.NoError(t, err)
	require.Equal(t, []int{5, 32}, []int{row.Rows, row.Cols})
	require.NoError(t, x.Keep(mb, fp8.Columnwise))
	require.Equal(t, both/2, p.Live())
	require.Equal(t, fp8.Columnwise, x.Usage())

	_, err = x.Rowwise()
	require.ErrorIs(t, err, fp8.ErrKept)
	require.ErrorContains(t, err, `"block0.qkv.input" has columnwise, not rowwise`)
	require.ErrorIs(t, x.Keep(mb, fp8.Rowwise), fp8.ErrKept)
	require.ErrorIs(t, x.Keep(mb, 0), fp8.ErrKept)
	col, err := x.Columnwise()
	require.NoError(t, err)
	require.Equal(t, []int{32, 5}, []int{col.Rows, col.Cols})
	require.NoError(t, x.Keep(mb, fp8.Columnwise), "again: there is nothing to end")
	require.NoError(t, x.Release(mb))
}

// Save moves a tensor, and Take returns it once.
func TestSaveAndTake(t *testing.T) {
	p := newPlace(t)
	mb := p.in(frames.InForward)
	x := p.tensor(t, fp8.Rowwise|fp8.Columnwise)
	require.ErrorIs(t, x.Save(mb, batchctx.ByBackward, 3), fp8.ErrLost, "two halves")
	require.NoError(t, x.Keep(mb, fp8.Columnwise))
	require.NoError(t, x.Save(mb, batchctx.ByBackward, 3))

	for name, err := range map[string]error{
		"Save": x.Save(mb, batchctx.ByBackward, 4), "Keep": x.Keep(mb, fp8.Columnwise), "Release": x.Release(mb),
	} {
		require.ErrorIs(t, err, fp8.ErrTaken, name)
		require.ErrorContains(t, err, `"block0.qkv.input"`, name)
	}
	_, err := x.Columnwise()
	require.ErrorIs(t, err, fp8.ErrTaken)

	unknown := shape
	unknown.Rows = 0
	mb = p.in(frames.InBackward)
	y, err := fp8.Take(mb, 3, unknown, fp8.Columnwise)
	require.NoError(t, err)
	require.Equal(t, 5, y.Rows, "from the size")
	require.NoError(t, y.Release(mb))
	require.ErrorIs(t, y.Release(mb), fp8.ErrReleased)
	_, err = y.Columnwise()
	require.ErrorIs(t, err, fp8.ErrReleased)
	require.ErrorIs(t, y.Save(mb, batchctx.ByBackward, 5), fp8.ErrReleased)
	func() {
		defer p.frames.Recover(&err)
		_, _ = fp8.Take(mb, 3, shape, fp8.Columnwise)
	}()
	require.ErrorIs(t, err, batchctx.ErrTaken)
}

// Take requires the size that was saved.
func TestTakeOfAnotherSize(t *testing.T) {
	p := newPlace(t)
	mb := p.in(frames.InForward)
	x := p.tensor(t, fp8.Rowwise)
	require.NoError(t, x.Save(mb, batchctx.ByBackward, 1))
	other := shape
	other.Rows++
	_, err := fp8.Take(p.in(frames.InBackward), 1, other, fp8.Rowwise)
	require.ErrorIs(t, err, fp8.ErrShape)
	require.ErrorContains(t, err, `"block0.qkv.input"`)
}

func TestZeroTensor(t *testing.T) {
	p := newPlace(t)
	mb := p.in(frames.InForward)
	var x fp8.Tensor
	require.ErrorIs(t, x.Release(mb), fp8.ErrReleased)
	require.Equal(t, "nothing", x.Usage().String())
	require.Equal(t, "rowwise and columnwise usage(9)", (fp8.Rowwise|fp8.Columnwise).String()+" "+fp8.Usage(9).String())
}

// A slab copies scales to a device and tallies back.
func TestSlab(t *testing.T) {
	p := newPlace(t)
	s := state(t, fp8.DelayedScaling{Format: fp8.Hybrid})
	slab, err := fp8.NewSlab(p.Host, s, []int{2, 0})
	require.NoError(t, err)
	require.Equal(t, p.Live(), p.Scope(memory.Metadata).Live)
	require.Equal(t, kernels.Cell{}, slab.Scale(0), "no history: its own amax")

	tally := slab.Tally(1)
	words := make([]int32, tally.Buffer.N)
	put := func(index int, values ...int32) { copy(words[8*index:], values) }
	put(slab.Tally(0).Index, 0x3f800000, 1, 2, 3, 4, 0, 5, 1)
	put(tally.Index, 0x40000000)
	require.NoError(t, p.WriteInt32(tally.Buffer, words))
	tallies := make([]fp8.Tally, 3)
	require.NoError(t, slab.Collect(tallies))
	require.Equal(t, uint32(0x40000000), tallies[0].Amax)
	require.Equal(t, fp8.Tally{}, tallies[1])
	require.Equal(t, []uint64{3, 4, 5 + 1<<32}, []uint64{tallies[2].NonFinite, tallies[2].Saturated, tallies[2].Underflowed})

	require.NoError(t, slab.Forget(1, 1))
	clear(tallies)
	require.NoError(t, slab.Collect(tallies))
	require.Zero(t, tallies[0])
	require.NotZero(t, tallies[2])

	_, err = s.End(measured(2, 0, 1))
	require.NoError(t, err)
	require.NoError(t, slab.Load(s))
	clear(tallies)
	require.NoError(t, slab.Collect(tallies))
	require.Equal(t, make([]fp8.Tally, 3), tallies)
	scales := make([]float32, 2)
	require.NoError(t, p.ReadFloat32(scales, slab.Scale(0).Buffer))
	require.Equal(t, []float32{57344, 224}, scales)
	require.NoError(t, slab.Close())
}

// unwritten is a device on which every write fails.
type unwritten struct{ *kernels.Host }

var errPlanted = errors.New("planted")

func (unwritten) WriteInt32(kernels.Buffer, []int32) error { return errPlanted }

// NewSlab releases its buffer if the scales cannot be written.
func TestSlabOfNoUse(t *testing.T) { // newPlace checks that nothing is left
	_, err := fp8.NewSlab(unwritten{newPlace(t).Host}, state(t, fp8.DelayedScaling{Format: fp8.Hybrid}), []int{0})
	require.ErrorIs(t, err, errPlanted)
}
