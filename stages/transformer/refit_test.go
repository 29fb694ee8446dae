package transformer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// pair is a model on two devices with its runner.
type pair struct {
	hosts []*kernels.Host
	model *transformer.Model
	group *runner.Runner[kernels.Buffer]
	batch []sequence
}

// delayed is a small model in FP8 with delayed scaling, which keeps scales between steps in a slab.
var delayed = transformer.Config{
	Vocabulary: 11, Width: 16, Layers: 2, Heads: 2, Context: 10, Seed: 5,
	FP8: fp8.DelayedScaling{Format: fp8.Hybrid},
}

func newPair(t *testing.T, cfg transformer.Config, batch []sequence) *pair {
	t.Helper()
	p := &pair{hosts: []*kernels.Host{newHost(t), newHost(t)}, batch: batch}
	a, b := kernels.Compute(p.hosts[0]), kernels.Compute(p.hosts[1])
	p.model = newModelOn(t, cfg, []kernels.Compute{a, a, b, b})
	var err error
	p.group, err = runner.New(runner.Config[kernels.Buffer]{
		Stages: p.model.Stages(), Spaces: runner.Spaces[kernels.Buffer](a, b), Seed: runnerSeed,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Plan:   runner.Plan{Placement: schedule.Placement{Rank: []int{0, 0, 1, 1}, Ranks: 2}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.group.Close()) })
	return p
}

// step runs a step and an update.
func (p *pair) step(t *testing.T) (*runner.Result, error) {
	t.Helper()
	result, err := p.group.Step(context.Background(), len(p.batch), runner.PerRank[kernels.Buffer](
		&source{p.hosts[0], p.batch}, &source{p.hosts[1], p.batch},
	))
	if err == nil {
		_, err := p.model.RollScales(context.Background(), nil)
		require.NoError(t, err)
		require.NoError(t, p.model.Update(transformer.AdamW{LearningRate: 0.01}, result, 1))
	}
	return result, err
}

// state returns the bits of everything that a model keeps between steps.
func (p *pair) state(t *testing.T) (list [][]uint32) {
	t.Helper()
	for _, parameter := range p.model.Parameters() {
		for c := range parameter.All() {
			for _, b := range []kernels.Buffer{c.Weight, c.M, c.V} {
				list = append(list, bits(read(t, c.Device, b)))
			}
		}
	}
	scales, err := p.model.MarshalScales()
	require.NoError(t, err)
	for _, b := range scales {
		list = append(list, []uint32{uint32(b)})
	}
	return list
}

// A model whose scopes are released between steps, all or only the dead ones, trains to the
// same bits at the same addresses. The released scopes use no memory until they are restored.
func TestReleaseAndRestore(t *testing.T) {
	for _, cfg := range []transformer.Config{tiny, delayed} {
		batch := sequences(random(t), cfg, 6)
		kept := newPair(t, cfg, batch)
		for range 3 {
			_, err := kept.step(t)
			require.NoError(t, err)
		}
		for name, scopes := range map[string][]memory.Scope{"dead scopes": nil, "all": memory.Scopes(), "all but the weights": {memory.StepScope, memory.Gradients, memory.Optimizer, memory.Metadata}} {
			t.Run(fmt.Sprintf("%s, FP8 %v", name, cfg.FP8 != nil), func(t *testing.T) {
				p := newPair(t, cfg, batch)
				before := addresses(t, p)
				for range 3 {
					_, err := p.step(t)
					require.NoError(t, err)
					p.refit(t, scopes)
				}
				require.Equal(t, kept.state(t), p.state(t))
				require.Equal(t, before, addresses(t, p))
			})
		}
	}
}

// refit releases scopes, checks that nothing of them is left, and restores them.
func (p *pair) refit(t *testing.T, scopes []memory.Scope) {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, p.model.Release(&file, scopes...))
	if scopes == nil {
		scopes = []memory.Scope{memory.StepScope, memory.Gradients}
		require.Zero(t, file.Len(), "dead bytes are not written")
	}
	for _, host := range p.hosts {
		for _, scope := range scopes {
			stats := host.Scope(scope)
			require.Zero(t, stats.Live, "%v", scope)
			require.Zero(t, stats.Reserved, "%v", scope)
			require.LessOrEqual(t, stats.Pages, int64(0), "%v", scope)
		}
	}
	_, err := p.step(t)
	require.ErrorIs(t, err, memory.ErrReleased)
	require.NoError(t, p.model.Restore(&file))
	require.Zero(t, file.Len(), "all that was written is read")
}

// addresses returns the addresses of the weights.
func addresses(t *testing.T, p *pair) (list []*byte) {
	t.Helper()
	for _, parameter := range p.model.Parameters() {
		for c := range parameter.All() {
			view, err := c.Device.(kernels.Lender).Lend(c.Weight)
			require.NoError(t, err)
			list = append(list, &view[0])
		}
	}
	return list
}

// Weights yields every weight once, in the order of the parameters, and stops if the loop is left.
func TestWeightsOneAtATime(t *testing.T) {
	p := newPair(t, tiny, sequences(random(t), tiny, 2))
	live := p.hosts[0].Live() + p.hosts[1].Live()
	var names []string
	for w := range p.model.Weights() {
		parameter := p.model.Parameters()[len(names)]
		require.Equal(t, parameter.Name, w.Name)
		require.Equal(t, parameter.Shape, w.Shape)
		require.Equal(t, bits(read(t, parameter.Device, parameter.Weight)), bits(read(t, w.Device, w.Float32)))
		require.Equal(t, live, p.hosts[0].Live()+p.hosts[1].Live(), "nothing is copied")
		names = append(names, w.Name)
	}
	require.Len(t, names, len(p.model.Parameters()))
	for range p.model.Weights() {
		break
	}
}

// QuantizedWeights yields the same names. Each matrix of a block equals the transposed result of
// Quantize, and is released at the end of its iteration, even if the loop is left.
func TestQuantizedWeightsOneAtATime(t *testing.T) {
	p := newPair(t, tiny, sequences(random(t), tiny, 2))
	live := func() int64 { return p.hosts[0].Live() + p.hosts[1].Live() }
	before := live()
	for _, encoding := range []kernels.Encoding{{Format: kernels.E4M3, Scaling: kernels.Tiles128}, {Format: kernels.E4M3, Scaling: kernels.MX32}, {Format: kernels.E2M1, Scaling: kernels.NV16}} {
		var names []string
		for w, err := range p.model.QuantizedWeights(encoding) {
			require.NoError(t, err)
			parameter := p.model.Parameters()[len(names)]
			names = append(names, w.Name)
			require.Equal(t, parameter.Name, w.Name)
			if len(w.Shape) < 2 || strings.Contains(w.Name, "embedding") || strings.Contains(w.Name, "positions") {
				require.Equal(t, parameter.Weight, w.Float32)
				require.Equal(t, before, live())
				continue
			}
			require.Zero(t, w.Float32, w.Name)
			require.Equal(t, before+int64(w.Quantized.Data.N), live(), "one at a time")
			require.Equal(t, []int{w.Shape[1], w.Shape[0]}, []int{w.Quantized.Rows, w.Quantized.Cols})
			back, err := w.Device.Alloc(memory.Workspace, kernels.Float32, parameter.Weight.N)
			require.NoError(t, err)
			require.NoError(t, w.Device.Dequantize(back, w.Quantized, true))
			want, got := read(t, w.Device, parameter.Weight), read(t, w.Device, back)
			for i := range want {
				require.InDelta(t, want[i], got[i], 0.03, "%s %v element %d", w.Name, encoding, i)
			}
			require.NotEqual(t, want, got)
			_, err = w.Device.Release(back)
			require.NoError(t, err)
		}
		require.Len(t, names, len(p.model.Parameters()))
		for w := range p.model.QuantizedWeights(encoding) {
			if w.Quantized.Rows > 0 {
				break
			}
		}
		require.Equal(t, before, live())
	}
	for w, err := range p.model.QuantizedWeights(kernels.Encoding{Format: kernels.E2M1}) {
		if err != nil {
			require.ErrorIs(t, err, kernels.ErrShape)
			require.ErrorContains(t, err, "block0.attention.qkv.weight")
			return
		}
		require.Zero(t, w.Quantized)
	}
	require.Fail(t, "there are no E2M1 codes with one scale")
}

// If a writer fails, Restore undoes the release, and the model continues.
func TestReleaseFails(t *testing.T) {
	batch := sequences(random(t), tiny, 2)
	p, kept := newPair(t, tiny, batch), newPair(t, tiny, batch)
	_, err := p.step(t)
	require.NoError(t, err)
	_, err = kept.step(t)
	require.NoError(t, err)
	full := errors.New("no space left")
	for room := 0; ; room += 5 {
		file := &limited{room: room, err: full}
		if err = p.model.Release(file, memory.Scopes()...); err == nil {
			require.Positive(t, room)
			require.NoError(t, p.model.Restore(&file.Buffer))
			break
		}
		require.ErrorIs(t, err, full)
		require.ErrorContains(t, err, "releasing memory of host")
		require.NoError(t, p.model.Restore(&file.Buffer))
	}
	for _, p := range []*pair{p, kept} {
		_, err = p.step(t)
		require.NoError(t, err)
	}
	require.Equal(t, kept.state(t), p.state(t))

	require.ErrorContains(t, p.model.Release(nil, memory.Weights), "without a writer")
	unpaged := newModel(t, &plainDevice{Compute: newHost(t)}, tiny, 1)
	require.ErrorIs(t, unpaged.Release(nil), errors.ErrUnsupported)
}

// A live buffer on one device, or on both, prevents all releases: nothing is released, and the
// error has the owners on each device.
func TestReleaseAsksAllFirst(t *testing.T) {
	batch := sequences(random(t), delayed, 2)
	p := newPair(t, delayed, batch)
	_, err := p.step(t)
	require.NoError(t, err)
	for _, busy := range [][]int{{1}, {0, 1}} {
		var held []kernels.Buffer
		for _, on := range busy {
			b, err := p.hosts[on].Alloc(memory.Saved, kernels.Float32, 10+on)
			require.NoError(t, err)
			held = append(held, b)
		}
		var before, after [2][memory.NumScopes]memory.ScopeStats
		look := func(at *[2][memory.NumScopes]memory.ScopeStats) {
			for on, host := range p.hosts {
				for _, scope := range memory.Scopes() {
					at[on][scope] = host.Scope(scope)
				}
			}
		}
		look(&before)
		var file bytes.Buffer
		err := p.model.Release(&file, memory.Scopes()...)
		look(&after)
		require.ErrorIs(t, err, memory.ErrLive)
		for _, on := range busy {
			require.ErrorContains(t, err, fmt.Sprintf("%d bytes (saved", 40+4*on))
		}
		require.Equal(t, before, after)
		require.Zero(t, file.Len())
		for i, on := range busy {
			_, err := p.hosts[on].Release(held[i])
			require.NoError(t, err)
		}
	}
	p.refit(t, memory.Scopes())
	_, err = p.step(t)
	require.NoError(t, err)
}

// limited is a file with space for a limited number of writes.
type limited struct {
	bytes.Buffer
	room int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	if l.room--; l.room < 0 {
		return 0, l.err
	}
	return l.Buffer.Write(p)
}

// plainDevice is a device that does not release pages.
type plainDevice struct{ kernels.Compute }
