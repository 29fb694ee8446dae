package leaks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/leaks"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/tests/rewind"
)

func find(t *testing.T, s *snapshot.Snapshot, options leaks.Options) leaks.Device {
	t.Helper()
	_, err := rewind.Segments(s, 0)
	require.NoError(t, err, "the snapshot is one that an allocator makes")
	report, err := leaks.Find(s, options)
	require.NoError(t, err)
	require.Len(t, report.Devices, 1)
	_, err = json.Marshal(report)
	require.NoError(t, err)
	return report.Devices[0]
}

// TestPublished finds each of the published leaks in a run without the guard that its fix
// added, and nothing in a run with it, with one microbatch in flight and with four, in native
// and in expandable segments.
func TestPublished(t *testing.T) {
	const microbatches = 24
	for _, c := range []struct {
		name   string
		forget guard
		site   []snapshot.Frame
		text   string
		each   int64
		first  int
		blocks int
	}{
		{"the loss is logged and keeps its graph (Fast-LLM 486)",
			func(site []snapshot.Frame, _, _ int) bool { return &site[0] == &logits[0] }, logits, "loss.py:31 cross_entropy", 164 * mib, 0, 24},
		{"attention keeps its saved tensors on its context (TransformerEngine 1935)",
			func(site []snapshot.Frame, _, _ int) bool { return &site[0] == &attention[0] }, attention, "attention.py:104 forward", 4 * 24 * mib, 0, 96},
		{"the operation fuser keeps the blocks of one layer, once it fuses (TransformerEngine 2750)",
			func(site []snapshot.Frame, mb, layer int) bool { return &site[0] == &mlp[0] && layer == 2 && mb >= 5 }, mlp, "mlp.py:33 forward", 12 * mib, 5, 19},
	} {
		for _, depth := range []int{1, 4} {
			for _, expandable := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/in flight %d, expandable %v", c.name, depth, expandable), func(t *testing.T) {
					s := newTraining(t, expandable)
					s.train(microbatches, depth, c.forget)
					d := find(t, s.a.Snapshot(), leaks.Options{})
					require.Equal(t, microbatches, d.Microbatches)
					require.Len(t, d.Growing, 1)
					g := d.Growing[0]
					require.Equal(t, c.text, g.Site.String())
					require.Equal(t, "train.py:88 train_step", g.Site.Caller())
					require.Equal(t, []any{c.each, c.first, c.blocks}, []any{g.Each, g.First, g.Blocks})
					require.Equal(t, c.each, d.Total())
					require.Equal(t, leaks.Before{}, d.Before)

					told := find(t, s.a.Snapshot(), leaks.Options{Microbatches: microbatches})
					require.Equal(t, d.Growing, told.Growing)
				})
			}
		}
	}
}

// TestHealthy finds nothing in runs without a leak, at the end of a step and in its middle,
// where four microbatches are in flight.
func TestHealthy(t *testing.T) {
	never := func([]snapshot.Frame, int, int) bool { return false }
	s := newTraining(t, false)
	s.train(16, 4, never)
	d := find(t, s.a.Snapshot(), leaks.Options{})
	require.Empty(t, d.Growing)
	require.Len(t, d.Standing, 1, "the weights")
	require.Equal(t, int64(256*mib), d.Standing[0].Bytes)
	require.Zero(t, d.Pins.Segments, "the weights fill theirs")

	for mb := range 12 {
		if mb < 2 {
			s.malloc(mib, rope) // a cache that is full after two entries
		}
		s.forward(mb, never)
		if len(s.inFlight) == 5 {
			s.backward()
		}
	}
	require.Empty(t, find(t, s.a.Snapshot(), leaks.Options{}).Growing, "in mid-step")
}

// lengths trains microbatches whose tensors differ in size, as those of packed sequences do, with two in
// flight. kept decides which logits are kept, and a cache keeps a table for each new length.
func lengths(t *testing.T, of func(mb int) int64, microbatches int, kept func(mb int) bool) *training {
	s, tables := newTraining(t, false), map[int64]bool{}
	for mb := range microbatches {
		length := of(mb)
		saved := []int64{s.malloc(16*length, embedding), s.malloc(24*length, attention)}
		if !tables[length] {
			tables[length] = true
			s.malloc(length, rope)
		}
		if loss := s.malloc(164*length, logits); !kept(mb) {
			saved = append(saved, loss)
		}
		if s.inFlight = append(s.inFlight, saved); len(s.inFlight) == 2 {
			s.backward()
		}
	}
	for len(s.inFlight) > 0 {
		s.backward()
	}
	return s
}

// A leak is found by its call stack and size class, whatever the length of each microbatch, and a run that
// keeps nothing is healthy. A cache with a table for every length has as many sizes, but it fills up.
func TestVariableLengths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	any, some := make([]int64, 32), []int64{8 << 10, 16 << 10, 24 << 10, 64 << 10}
	for mb := range any {
		any[mb] = 1<<10 + random.Int64N(8<<10)
	}
	always, never := func(int) bool { return true }, func(int) bool { return false }
	for name, of := range map[string]func(mb int) int64{
		"buckets": func(mb int) int64 { return some[mb*mb%7%4] }, "growing": func(mb int) int64 { return int64(1+mb) << 10 },
		"random": func(mb int) int64 { return any[mb] }, "halved": func(mb int) int64 { return any[mb/2*2%16] },
	} {
		for _, microbatches := range []int{8, 32} {
			var total int64
			for mb := range microbatches {
				total += 164 * of(mb)
			}
			d := find(t, lengths(t, of, microbatches, always).a.Snapshot(), leaks.Options{Microbatches: microbatches})
			at := slices.IndexFunc(d.Growing, func(g leaks.Group) bool { return g.Site.String() == "loss.py:31 cross_entropy" })
			require.GreaterOrEqual(t, at, 0, name)
			g := d.Growing[at]
			require.Equal(t, []int{microbatches, microbatches, 0}, []int{g.Count, g.Blocks, g.First}, name)
			require.InDelta(t, total/int64(microbatches), g.Rate, 1, name)
			require.Less(t, g.Size, g.Most)
		}
		d := find(t, lengths(t, of, 32, never).a.Snapshot(), leaks.Options{Microbatches: 32})
		for _, g := range d.Growing {
			require.Equal(t, "rope.py:20 get_table", g.Site.String(), name)
			require.Contains(t, []string{"growing", "random"}, name, "the cache gets a new length in each microbatch")
		}
	}
}

// The total is the growth per microbatch over all microbatches, not the size of one leaked block.
func TestRateOfRareLeak(t *testing.T) {
	d := find(t, lengths(t, func(int) int64 { return 8 << 10 }, 24, func(mb int) bool { return mb%4 == 0 }).a.Snapshot(), leaks.Options{})
	require.Len(t, d.Growing, 1)
	g := d.Growing[0]
	require.EqualValues(t, 164*8<<10, g.Each)
	require.EqualValues(t, 164*8<<10/4, g.Rate)
	require.Equal(t, g.Rate, d.Total())
}

// Sizes of one stack that are far apart form separate groups, and so do all sizes without a stack. A group that
// is freed late does not hide the growth of another.
func TestSizeClasses(t *testing.T) {
	s := newTraining(t, false)
	var late []int64
	for mb := range 12 {
		s.malloc(16*mib, embedding)
		late = append(late, s.malloc(4096, logits))
		s.malloc(40*mib+int64(mb)*mib, logits)
	}
	s.free(late[:11]...)
	d := find(t, s.a.Snapshot(), leaks.Options{Microbatches: 12})
	require.Len(t, d.Growing, 2)
	require.EqualValues(t, 40*mib, d.Growing[0].Size)
	require.EqualValues(t, 51*mib, d.Growing[0].Most)
	require.Equal(t, 12, d.Growing[0].Count)
	require.Len(t, d.Standing, 1)
	require.EqualValues(t, 4096, d.Standing[0].Bytes)
}

// TestLayersAreNoMicrobatches trains one batch of 40 layers, with a loop over their parameters
// at the end, and six microbatches of such layers: the first has no period, and the second has
// six microbatches, not 240.
func TestLayersAreNoMicrobatches(t *testing.T) {
	for _, c := range []struct{ batches, period int }{{1, 0}, {6, 6}} {
		s := newTraining(t, false)
		for range c.batches {
			saved := []int64{s.malloc(16*mib, embedding)}
			for range 40 {
				saved = append(saved, s.malloc(24*mib, attention), s.malloc(12*mib, mlp))
			}
			for _, address := range saved {
				g := s.malloc(16*mib, gradient)
				s.free(address, g)
			}
		}
		for range 40 {
			s.malloc(mib, weights)
		}
		d := find(t, s.a.Snapshot(), leaks.Options{})
		require.Equal(t, c.period, d.Microbatches)
		require.Empty(t, d.Growing)
	}
}

// TestCandidates trains 24 microbatches of twelve layers, whose gradients already exist: the layers recur as
// evenly as the microbatches, and four microbatches leak.
func TestCandidates(t *testing.T) {
	s := newTraining(t, false)
	for mb := range 24 {
		saved := []int64{s.malloc(16*mib, embedding)}
		for range 12 {
			saved = append(saved, s.malloc(24*mib, attention), s.malloc(12*mib, mlp))
		}
		if kept := s.malloc(164*mib, logits); mb%6 != 0 {
			saved = append(saved, kept)
		}
		for _, address := range saved {
			s.free(address)
		}
	}
	d := find(t, s.a.Snapshot(), leaks.Options{})
	require.Equal(t, 288, d.Microbatches)
	require.Len(t, d.Candidates, 2)
	require.Equal(t, 24, d.Candidates[1].Microbatches)
	require.Equal(t, "embedding.py:12 forward", d.Candidates[1].Site.String())

	d = find(t, s.a.Snapshot(), leaks.Options{Microbatches: 24})
	require.Nil(t, d.Candidates)
	require.Equal(t, []int{24, 4}, []int{d.Microbatches, d.Growing[0].Count})
}

// TestParametersAreNoMicrobatches is given four microbatches for a model with four parameters:
// the calls that allocate parameters all come before training.
func TestParametersAreNoMicrobatches(t *testing.T) {
	s := newTraining(t, false)
	s.train(16, 1, func(site []snapshot.Frame, _, _ int) bool { return &site[0] == &logits[0] })
	d := find(t, s.a.Snapshot(), leaks.Options{Microbatches: 4})
	require.Nil(t, d.Anchor)
	require.Len(t, d.Growing, 1)
	require.Equal(t, "loss.py:31 cross_entropy", d.Growing[0].Site.String())
	require.EqualValues(t, 4*164*mib, d.Growing[0].Each)
}

// TestFullRing removes the beginning of the trace, as a full ring does, and also tests a
// recording that begins late.
func TestFullRing(t *testing.T) {
	s := newTraining(t, false)
	s.train(24, 2, func(site []snapshot.Frame, _, _ int) bool { return &site[0] == &logits[0] })
	whole := s.a.Snapshot()
	cut := *whole
	cut.Traces = [][]snapshot.TraceEntry{whole.Traces[0][len(whole.Traces[0])/2:]}
	d := find(t, &cut, leaks.Options{})
	require.True(t, d.Before.Full)
	require.Positive(t, d.Before.Frees)
	require.Len(t, d.Growing, 1)
	require.EqualValues(t, 164*mib, d.Growing[0].Each)
	require.Equal(t, 24, d.Growing[0].Blocks+d.Growing[0].Before)

	late := *whole
	late.Segments = append([]snapshot.Segment(nil), whole.Segments...)
	for i := range late.Segments {
		blocks := append([]snapshot.Block(nil), late.Segments[i].Blocks...)
		for j := range blocks {
			blocks[j].Frames = nil
		}
		late.Segments[i].Blocks = blocks
	}
	late.Traces = cut.Traces
	require.False(t, find(t, &late, leaks.Options{}).Before.Full)
}

// TestPins is the case of NeMo-RL 2003: small cached tables that are allocated in mid-step pin
// the segments of all freed blocks.
func TestPins(t *testing.T) {
	s := newTraining(t, false)
	s.train(8, 4, func([]snapshot.Frame, int, int) bool { return false })
	s.a.EmptyCache()
	var activations []int64
	for range 32 {
		activations = append(activations, s.malloc(8*mib, attention), s.malloc(8*mib, attention))
		s.malloc(mib+mib/2, rope)
	}
	s.free(activations...)
	s.a.EmptyCache()
	d := find(t, s.a.Snapshot(), leaks.Options{})
	require.Positive(t, d.Pins.Segments)
	require.GreaterOrEqual(t, d.Pins.Blocks, 32)
	require.Equal(t, "rope.py:20 get_table", d.Pins.Sites[0].Site.String())
	require.Equal(t, 32, d.Pins.Sites[0].Blocks)
	require.GreaterOrEqual(t, d.Pins.Sites[0].Live, int64(32*(mib+mib/2)))
	require.Greater(t, d.Pins.Sites[0].Reserved, 4*d.Pins.Sites[0].Live)
}

func TestSitesAreLines(t *testing.T) {
	frames := []snapshot.Frame{{Name: "c10::evil\x1b[2J\t(int, long)", Filename: "/tmp/a\n.py", Line: 3}, {Name: "run", Filename: "b.py", Line: 4}}
	require.Equal(t, "a?.py:3 c10::evil?[2J?", leaks.Site{Frames: frames}.String())
	require.Equal(t, "b.py:4 run", leaks.Site{Frames: frames}.Caller())
	planned := leaks.Site{Frames: []snapshot.Frame{{Name: "saved:stage 1 (block): qkv", Filename: "stage1/F", Line: 2}}}
	require.Equal(t, "stage1/F:2 saved:stage 1 (block): qkv", planned.String())
	require.Equal(t, "(no call stack)", leaks.Site{}.String())
	require.Empty(t, leaks.Site{}.Caller())
}

func TestRefuses(t *testing.T) {
	_, err := leaks.Find(&snapshot.Snapshot{}, leaks.Options{})
	require.ErrorContains(t, err, "no trace: call torch.cuda.memory._record_memory_history()")
	s := newTraining(t, false)
	s.malloc(1, weights)
	_, err = leaks.Find(s.a.Snapshot(), leaks.Options{Microbatches: 9})
	require.ErrorContains(t, err, "9 microbatches, but the trace of device 0 has only 1 allocations")
	_, err = leaks.Find(&snapshot.Snapshot{Segments: []snapshot.Segment{{Device: 1 << 30}}}, leaks.Options{})
	require.ErrorContains(t, err, "at most 1024")
}

// TestHostileSegments reads segments that no allocator produces.
func TestHostileSegments(t *testing.T) {
	s := &snapshot.Snapshot{Traces: [][]snapshot.TraceEntry{{{Action: snapshot.Alloc, Address: 1, Size: 1}}}}
	for _, segment := range []snapshot.Segment{
		{Size: -1}, {Size: 1 << 62, Expandable: true, Blocks: []snapshot.Block{{Size: 1 << 62, State: snapshot.Live}}},
		{Size: 10, Blocks: []snapshot.Block{{Address: -5, Size: 100, State: snapshot.Live}}},
	} {
		s.Segments = []snapshot.Segment{segment}
		_, err := leaks.Find(s, leaks.Options{Microbatches: 1})
		require.NoError(t, err)
	}
}

// TestDocumentedSnapshot compares the snapshot in docs/snapshots.md with the result of a run
// with a kept loss: 16 microbatches of 1F1B, and tables of a cache allocated in the last.
func TestDocumentedSnapshot(t *testing.T) {
	s := newTraining(t, false)
	s.train(16, 4, func(site []snapshot.Frame, mb, _ int) bool { return &site[0] == &logits[0] && mb >= 2 })
	var activations []int64
	for range 16 {
		activations = append(activations, s.malloc(9*mib, attention), s.malloc(8*mib, attention))
		s.malloc(mib+mib/2, rope)
	}
	s.free(activations...)
	s.a.EmptyCache()
	var file bytes.Buffer
	require.NoError(t, snapshot.Write(&file, s.a.Snapshot()))
	const path = "../../../../docs/snapshots/kept-loss.pickle"
	if *testkit.Update {
		require.NoError(t, os.MkdirAll("../../../../docs/snapshots", 0o755))
		require.NoError(t, os.WriteFile(path, file.Bytes(), 0o644))
		return
	}
	documented, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(file.Bytes(), documented), "go test ./cmd/weir/internal/leaks -update writes it anew")
}
