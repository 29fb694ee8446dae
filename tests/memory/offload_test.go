package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// offloaded runs two steps in which stages offload a share of their saved state, and returns the
// result of the second and its planned memory.
func (r *rig) offloaded(t *testing.T, profile *layout.Profile, m, length int, offload runner.Offload) (*runner.Result, *layout.Memory) {
	t.Helper()
	r.cfg.Memory.Offload = offload
	group := r.group(t, profile)
	plan := prepare(t, group, m, nil)
	result := runStep(t, group, m, r.sources(fixed(length)))
	require.NoError(t, result.Update(func(float64) error { return nil }))
	result = runStep(t, group, m, r.sources(fixed(length)))
	return result, plan
}

// gradients returns the bits of all gradients.
func (r *rig) gradients(t *testing.T) (bits []uint32) {
	t.Helper()
	for _, p := range r.model.Parameters() {
		for c := range p.All() {
			x := make([]float32, c.Grad.N)
			require.NoError(t, c.Device.ReadFloat32(x, c.Grad))
			for _, v := range x {
				bits = append(bits, math.Float32bits(v))
			}
		}
	}
	return bits
}

// TestOffloadKeepsBits offloads under every schedule. The loss and the gradients must not change by a bit,
// and both memories must have the planned peaks.
func TestOffloadKeepsBits(t *testing.T) {
	testkit.Slow(t)
	folder := t.TempDir()
	for _, found := range schedule.Schedules() {
		for _, ranks := range []int{1, 2, 4} {
			for _, kind := range []string{"", " recompute", " fp8"} {
				s := setup{schedule: found.Name, ranks: ranks, stages: ranks * found.PerRank, model: tiny, capacity: 1}
				if _, _, err := s.placement(); err != nil || kind != "" && ranks != 2 && !*testkit.Long {
					continue
				}
				name := s.String() + kind
				s.model.Layers, s.model.Dropout, s.model.Recompute = 4, 0.25, kind == " recompute"
				if kind == " fp8" {
					s.model.Width, s.model.FP8 = 16, fp8.CurrentScaling{}
				}
				t.Run(name, func(t *testing.T) {
					profile := profileOf(t, s, 5)
					free := newRig(t, s, false)
					want, _ := free.offloaded(t, profile, 8, 5, runner.Offload{})
					require.Zero(t, want.FarPeak)
					laid := newRig(t, s, false)
					var records, others atomic.Int64
					laid.cfg.Hooks.Microbatch = func(s *memory.Sample) {
						records.Add(1)
						if s.FarPeak != s.FarPlanned {
							others.Add(1)
						}
					}
					got, plan := laid.offloaded(t, profile, 8, 5, runner.Offload{Share: 1, Folder: folder})
					require.Positive(t, records.Load())
					require.Zero(t, others.Load(), "the log has the planned far peak")
					require.Equal(t, want.Losses, got.Losses)
					require.Equal(t, math.Float64bits(want.GradNorm), math.Float64bits(got.GradNorm))
					require.Equal(t, free.gradients(t), laid.gradients(t))
					for rank := range plan.Ranks {
						near, did := &plan.Ranks[rank], &got.Ranks[rank]
						var stats memory.Stats
						laid.devs[rank].Stats(&stats)
						require.Equal(t, near.Peak.Bytes, did.Peak-stats.Live, "rank %d", rank)
						require.Equal(t, did.PeakPlanned, did.Peak)
						require.Equal(t, near.Height, did.Height)
						if near.Far == nil {
							require.Zero(t, did.FarPeak)
							continue
						}
						require.Equal(t, near.Far.Peak.Bytes, did.FarPeak, "rank %d", rank)
						require.Equal(t, near.Far.Height, did.FarHeight)
						require.Positive(t, did.FarPeak)
					}
				})
			}
		}
	}
}

// TestOffloadShares requires at every share that both memories have the planned peaks, and that the sum of the
// near peaks does not rise with the share. With -v it prints the table of docs/dev/measurements.md. The first
// column is the largest peak of a rank without offloading, not counting weights. For each share, there are
// three more columns: the largest peak and the sum of the peaks, as percentages of those without offloading,
// and the largest far peak.
func TestOffloadShares(t *testing.T) {
	testkit.Slow(t)
	shares := []float64{0, 0.25, 0.5, 0.75, 1}
	sizes := []int{4}
	if *testkit.Long {
		sizes = append(sizes, 8)
	}
	for _, name := range []string{"1f1b", "interleaved", "zb-v"} {
		for _, ranks := range sizes {
			found, err := schedule.Find(name)
			require.NoError(t, err)
			s := setup{schedule: name, ranks: ranks, stages: ranks * found.PerRank, capacity: 1}
			s.model = transformer.Config{Vocabulary: 64, Width: 32, Layers: 2*s.stages - 2, Heads: 2, Context: 32, Seed: 1, Untied: true}
			profile, row := profileOf(t, s, 32), ""
			var last, first, all int64
			for _, share := range shares {
				r := newRig(t, s, false)
				got, plan := r.offloaded(t, profile, 4*ranks, 32, runner.Offload{Share: share})
				var near, far, sum int64
				for rank := range plan.Ranks {
					planned, did := &plan.Ranks[rank], &got.Ranks[rank]
					require.Equal(t, planned.Peak.Bytes, did.Peak-resident(r.devs[rank]))
					near, far, sum = max(near, planned.Peak.Bytes), max(far, did.FarPeak), sum+planned.Peak.Bytes
				}
				require.Equal(t, plan.FarHeight(), got.FarHeight)
				require.True(t, share == 0 || sum <= last, "%v at %v: %d after %d", s, share, sum, last)
				if last = sum; share == 0 {
					first, all = near, sum
				}
				row += fmt.Sprintf(" | %d %%, %d %%, %d KiB", 100*near/first, 100*sum/all, far>>10)
			}
			t.Logf("| %s, P = %d | %d KiB%s |", name, ranks, first>>10, row)
		}
	}
}

// farRange is far memory whose errors and delays a test determines.
type farRange struct {
	bytes    []byte
	write    func() error         // called before a WriteAt; may be nil
	read     func(p []byte) error // called after a ReadAt; may be nil
	commit   error                // of Commit
	released bool
}

func (f *farRange) Page() int64                   { return 4096 }
func (f *farRange) Reserve(int64) error           { return nil }
func (f *farRange) Discard(int64, int64) error    { return nil }
func (f *farRange) Present(low, high int64) int64 { return high - low }
func (f *farRange) Release() error                { f.released = true; return nil }

func (f *farRange) Commit(_, high int64) error {
	if f.commit == nil && int64(len(f.bytes)) < high {
		f.bytes = append(f.bytes, make([]byte, high-int64(len(f.bytes)))...)
	}
	return f.commit
}

func (f *farRange) WriteAt(p []byte, off int64) (int, error) {
	if f.write != nil {
		if err := f.write(); err != nil {
			return 0, err
		}
	}
	return copy(f.bytes[off:], p), nil
}

func (f *farRange) ReadAt(p []byte, off int64) (int, error) {
	copy(p, f.bytes[off:])
	if f.read != nil {
		if err := f.read(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// offloads is 1F1B on four ranks, of which only rank 1 offloads: rank 0 saves no tensors, and the last two ranks
// have no time for copies.
var offloads = setup{schedule: "1f1b", ranks: 4, stages: 4, capacity: 1, model: tiny}

// ranges returns far memories of all ranks, and the configuration with them.
func ranges(n int) ([]*farRange, runner.Offload) {
	list := make([]*farRange, n)
	for i := range list {
		list[i] = &farRange{}
	}
	return list, runner.Offload{Share: 1, Range: func(rank int) (memory.Range, error) { return list[rank], nil }}
}

// TestCopiesAreAsynchronous delays the copies of every OFFLOAD and RELOAD until their rank begins its
// next computation. With synchronous copies the step would wait forever, which synctest reports.
func TestCopiesAreAsynchronous(t *testing.T) {
	profile := profileOf(t, offloads, 5)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, offloads, false)
		far, offload := ranges(offloads.ranks)
		away := profile.OffloadSlots(&r.cfg.Plan.Placement, 1)
		var mu sync.Mutex
		next := sync.NewCond(&mu)
		computed := make([]int, offloads.ranks) // computations that have begun
		held := map[schedule.Kind][][]int{}     // by rank, for each incomplete copy: the number of computations that must have begun
		held[schedule.Offload], held[schedule.Reload] = make([][]int, 4), make([][]int, 4)
		for rank := range far {
			hold := func(held [][]int) {
				mu.Lock()
				defer mu.Unlock()
				for computed[rank] < held[rank][0] {
					next.Wait()
				}
				held[rank] = held[rank][1:]
			}
			far[rank].write = func() error { hold(held[schedule.Offload]); return nil }
			far[rank].read = func([]byte) error { hold(held[schedule.Reload]); return nil }
		}
		r.cfg.Hooks.Action = func(rank int, a schedule.Action) {
			mu.Lock()
			defer mu.Unlock()
			if copies, moves := held[a.Kind()]; moves {
				for range bits.OnesCount64(away[a.Stage()]) {
					copies[rank] = append(copies[rank], computed[rank]+1)
				}
			} else if a.Kind().Compute() {
				computed[rank]++
				next.Broadcast()
			}
		}
		got, _ := r.offloaded(t, profile, 8, 5, offload)
		require.Positive(t, got.FarPeak)
	})
}

// TestFarFaults injects faults into far memory. Each fault ends the step on all ranks with an error that
// names it. Everything in both memories is released, and the next step has the numbers of a run without a
// fault.
func TestFarFaults(t *testing.T) {
	profile := profileOf(t, offloads, 5)
	full := errors.New("the disk is full")
	for name, fault := range map[string]struct {
		plant func(f *farRange)
		want  error
		text  string
	}{
		"full":       {func(f *farRange) { f.write = func() error { return full } }, full, `rank 1 action 1WAIT_OFFLOAD1 (stage 1 block0, microbatch 1): slot "input" of stage 1 (block0): offload: a copy of 160 bytes`},
		"unreadable": {func(f *farRange) { f.read = func([]byte) error { return io.EOF } }, io.ErrUnexpectedEOF, "offload: a copy of"},
		"changed":    {func(f *farRange) { f.read = func(p []byte) error { p[7]++; return nil } }, nil, "offload: the loaded bytes differ from the stored bytes"},
		"no room":    {func(f *farRange) { f.commit = full }, full, "rank 1: far memory of a step"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := newRig(t, offloads, false)
				want, _ := free.offloaded(t, profile, 8, 5, runner.Offload{})
				r := newRig(t, offloads, false)
				far, offload := ranges(offloads.ranks)
				r.cfg.Memory.Offload = offload
				var owners int
				r.cfg.Hooks.Failed = func(rank int, _ error, held iter.Seq[memory.Info]) {
					for info := range held {
						if rank == 1 && strings.HasSuffix(info.Name, "in far memory") {
							owners++
						}
					}
				}
				group := r.group(t, profile)
				fault.plant(far[1])
				_, err := group.Step(t.Context(), 8, r.sources(fixed(5)))
				if fault.want != nil {
					require.ErrorIs(t, err, fault.want)
				}
				require.ErrorContains(t, err, fault.text)
				require.Equal(t, name != "no room", owners > 0, "the dump has the copies")
				for _, dev := range r.devs {
					require.Equal(t, resident(dev), dev.Live())
				}
				far[1].write, far[1].read, far[1].commit = nil, nil, nil
				got := runStep(t, group, 8, r.sources(fixed(5)))
				require.Equal(t, want.Losses, got.Losses)
				require.Equal(t, free.gradients(t), r.gradients(t))
				require.Zero(t, got.Excess)
				require.Zero(t, got.Growth.Bytes)
				require.NoError(t, group.Close())
				for _, f := range far {
					require.Equal(t, f.bytes != nil, f.released)
				}
			})
		})
	}
}

// TestCancelledWhileAway cancels a step during a copy that does not end. The step ends when the copy
// does, and everything is released.
func TestCancelledWhileAway(t *testing.T) {
	profile := profileOf(t, offloads, 5)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, offloads, false)
		far, offload := ranges(offloads.ranks)
		r.cfg.Memory.Offload = offload
		hold := make(chan struct{})
		far[1].write = func() error { <-hold; return nil }
		group := r.group(t, profile)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		ended := false
		go func() {
			_, err = group.Step(ctx, 8, r.sources(fixed(5)))
			ended = true
		}()
		synctest.Wait()
		require.False(t, ended, "%v", err)
		cancel()
		synctest.Wait()
		require.False(t, ended, "the lane still reads a buffer of the step")
		close(hold)
		synctest.Wait()
		require.True(t, ended)
		require.ErrorIs(t, err, context.Canceled)
		for _, dev := range r.devs {
			require.Equal(t, resident(dev), dev.Live())
		}
		runStep(t, group, 8, r.sources(fixed(5)))
	})
}

// TestOffloadAllocatesNothing requires that a step that offloads makes the same number of allocations for many
// microbatches as for few (L11).
func TestOffloadAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("with the tag, every call hashes the tensors that its stage reads, which allocates")
	}
	s := setup{schedule: "interleaved", ranks: 1, stages: 2, capacity: 1, model: tiny}
	profile := profileOf(t, s, 5)
	r := newRig(t, s, false)
	r.cfg.Memory.Offload = runner.Offload{Share: 1}
	group := r.group(t, profile)
	from := r.sources(fixed(5))
	counts := func(m int, expected ...uint64) uint64 {
		return testkit.Allocations(func() {
			result := runStep(t, group, m, from)
			require.Positive(t, result.FarPeak)
		}, expected...)
	}
	counts(4096) // warm
	few := counts(64)
	require.Equal(t, few, counts(1024, few))
}

// TestOffloadConfig expects an error that names the fault for each faulty configuration.
func TestOffloadConfig(t *testing.T) {
	profile := profileOf(t, offloads, 5)
	for text, change := range map[string]func(c *runner.Config[T]){
		"a share of 1.5":          func(c *runner.Config[T]) { c.Memory.Offload.Share = 1.5 },
		"a share of NaN":          func(c *runner.Config[T]) { c.Memory.Offload.Share = math.NaN() },
		"budget of -1 bytes":      func(c *runner.Config[T]) { c.Memory.Offload.Budget = -1 },
		"it needs Memory.Profile": func(c *runner.Config[T]) { c.Memory.Profile = nil },
	} {
		r := newRig(t, offloads, false)
		r.cfg.Memory.Profile, r.cfg.Memory.Offload.Share = profile, 1
		change(&r.cfg)
		_, err := runner.New(r.cfg)
		require.ErrorContains(t, err, text)
	}
	null := newRig(t, offloads, true)
	null.cfg.Memory.Profile, null.cfg.Memory.Offload.Share = profile, 1
	_, err := runner.New(null.cfg)
	require.ErrorContains(t, err, "is neither memory.Movable")

	r := newRig(t, offloads, false)
	r.cfg.Memory.Offload = runner.Offload{Share: 1, Budget: 4096}
	_, err = r.group(t, profile).Step(t.Context(), 8, r.sources(fixed(5)))
	require.ErrorIs(t, err, memory.ErrOutOfMemory)

	r = newRig(t, offloads, false)
	r.cfg.Memory.Offload = runner.Offload{Share: 1, Folder: t.TempDir() + "/none"}
	_, err = r.group(t, profile).Step(t.Context(), 8, r.sources(fixed(5)))
	require.ErrorIs(t, err, fs.ErrNotExist)

	r = newRig(t, offloads, false) // an evaluation offloads nothing
	r.cfg.Memory.Offload.Share = 1
	result, err := r.group(t, profile).Evaluate(t.Context(), 8, r.sources(fixed(5)))
	require.NoError(t, err)
	require.Zero(t, result.FarPeak)
}

// unplanned is a space that is not memory.Planned, but whose buffers can be copied to far memory.
type unplanned struct {
	kernels.Compute
	memory.Movable[kernels.Buffer]
}

// TestOffloadUnplanned uses a space that is not memory.Planned: only far memory is planned.
func TestOffloadUnplanned(t *testing.T) {
	s := setup{schedule: "interleaved", ranks: 1, stages: 2, capacity: 1, model: tiny}
	s.model.Width = 64
	profile := profileOf(t, s, 5)
	free := newRig(t, s, false)
	want, _ := free.offloaded(t, profile, 8, 5, runner.Offload{})
	r := newRigOn(t, s, func(h *kernels.Host) kernels.Compute { return unplanned{h, h} })
	from := r.sources(fixed(5))
	got, plan := r.offloaded(t, profile, 8, 5, runner.Offload{Share: 1})
	require.Equal(t, want.Losses, got.Losses)
	require.Equal(t, free.gradients(t), r.gradients(t))
	require.Equal(t, 2, got.Books)
	require.False(t, got.Planned)
	require.Zero(t, got.Ranks[0].PeakPlanned)
	require.Positive(t, got.FarPeak)
	require.Equal(t, plan.FarHeight(), got.FarHeight)
	require.Equal(t, plan.Ranks[0].Far.Peak.Bytes, got.FarPeak)

	r.cfg.Memory.Offload = runner.Offload{Share: 1, Budget: got.FarHeight - 4096}
	small := r.group(t, profile)
	evaluated, err := small.Evaluate(t.Context(), 8, from)
	require.NoError(t, err)
	require.Equal(t, want.Losses, evaluated.Losses)
	require.Zero(t, evaluated.FarPeak)
	_, err = small.Step(t.Context(), 8, from)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.Equal(t, resident(r.devs[0]), r.devs[0].Live())

	found, placement, err := s.placement()
	require.NoError(t, err)
	plain, err := found.Rule(schedule.Params{Placement: placement, Microbatches: 8})
	require.NoError(t, err)
	away, err := lower.Prepare(plain, lower.Passes{StageInfo: profile.StageInfo, Parts: len(profile.Parts), OffloadSlots: profile.OffloadSlots(&placement, 1)})
	require.NoError(t, err)
	r.cfg.Memory.Offload, r.cfg.Plan = runner.Offload{}, runner.Plan{Fixed: away}
	_, err = r.group(t, nil).Step(t.Context(), 8, from)
	require.ErrorContains(t, err, "the plan offloads saved state: set Memory.Profile, and not TolerateLeaks")
}
