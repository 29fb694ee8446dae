package memory_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// unequal is a batch of microbatches of unequal lengths, with their shape classes and order.
type unequal struct{ classes, order []int }

// source is a source of the batch that announces the classes.
func (b unequal) source(r *rig, lengths []int) runner.Source[T] {
	length := func(m int) int { return lengths[b.classes[m]] }
	return runner.InOrder(runner.IndexedShapes(func(ctx context.Context, entry batchctx.Entry[T]) error {
		return (&source{dev: r.devs[entry.Rank()], length: length}).Next(ctx, entry)
	}, func(m int) int { return b.classes[m] }), [][]int{b.order})
}

// sent is a message of a step.
type sent struct {
	tag   transport.Tag
	bytes []int64 // of its tensors, as they were received
}

// heard is a rank's transport that records the messages that it receives.
type heard struct {
	transport.Transport[T]
	dev      kernels.Device
	messages []sent
	control  int // bytes that Begin and Exchange send
}

func (h *heard) Begin(ctx context.Context, hello []byte) error {
	h.messages, h.control = nil, len(hello)
	return h.Transport.Begin(ctx, hello)
}

func (h *heard) Recv(ctx context.Context, from int, tag transport.Tag, list []T) error {
	err := h.Transport.Recv(ctx, from, tag, list)
	m := sent{tag: tag}
	for _, tensor := range list {
		m.bytes = append(m.bytes, h.dev.Bytes(tensor))
	}
	h.messages = append(h.messages, m)
	return err
}

func (h *heard) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	h.control += len(mine)
	return h.Transport.Exchange(ctx, mine)
}

// stepping is the key of the context of a step.
type stepping struct{}

// counter counts the memory plans that steps make, rather than Prepare.
type counter struct {
	planning.Planner
	inSteps atomic.Int64
}

func (c *counter) Plan(ctx context.Context, step *planning.Step) (planning.Plan, error) {
	if ctx.Value(stepping{}) != nil {
		c.inSteps.Add(1)
	}
	return c.Planner.Plan(ctx, step)
}

// TestUnevenLengths runs batches of random numbers of microbatches, lengths and orders, and prepares each
// while the one before it runs. The peak equals the planned one to the byte, and no step plans memory
// itself. Each message has the size of its microbatch, and there are no messages except those of the plan.
// The bytes with which ranks agree on a step do not grow with its microbatches, and contain no shapes.
func TestUnevenLengths(t *testing.T) {
	lengths := []int{3, 5, 8, 2}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	batches := 3
	if *testkit.Long {
		batches = 100
	}
	for _, ranks := range []int{2, 4} {
		for _, name := range []string{"1f1b", "depth-first", "zb-v", "gpipe", "dualpipe"} {
			found, err := schedule.Find(name)
			require.NoError(t, err)
			s := setup{schedule: name, ranks: ranks, stages: ranks * found.PerRank, model: tiny, capacity: 1}
			s.model.Layers = s.stages
			profile := profileOf(t, s, lengths...)
			r := newRig(t, s, false)
			links, err := local.New(local.Config[T]{Ranks: ranks, Capacity: 1, Stall: -1, Copy: func(from, to int, h T) (T, error) {
				return r.hosts[to].Receive(r.hosts[from], h)
			}})
			require.NoError(t, err)
			var ends []*heard
			for rank := range ranks {
				ends = append(ends, &heard{Transport: links.Rank(rank), dev: r.devs[rank]})
			}
			r.cfg.Topology = runner.Topology[T]{Transport: func(rank int) transport.Transport[T] { return ends[rank] }}
			planner := &counter{Planner: profile}
			group := r.group(t, planner)
			model := make([]int64, ranks)
			for rank, dev := range r.devs {
				model[rank] = dev.Live()
			}
			next := func() (b unequal) {
				m := 2 * (ranks + random.IntN(4))
				for range m {
					b.classes = append(b.classes, random.IntN(len(lengths)))
				}
				b.order = random.Perm(m)
				return b
			}
			ctx := context.WithValue(t.Context(), stepping{}, true)
			now, control := next(), make([]int, ranks)
			plan := prepare(t, group, len(now.order), now.source(r, lengths))
			for batch := range batches {
				then, thenPlan := next(), plan
				var beside sync.WaitGroup
				beside.Go(func() { thenPlan = prepare(t, group, len(then.order), then.source(r, lengths)) })
				result, err := group.Step(ctx, len(now.order), now.source(r, lengths))
				require.NoError(t, err)
				beside.Wait()
				require.Zero(t, planner.inSteps.Load(), "the step has planned its memory")
				for i, rank := range result.Ranks {
					require.True(t, rank.Planned)
					require.Equal(t, rank.PeakPlanned, rank.Peak, "%s rank %d", name, i)
					require.Equal(t, plan.Ranks[i].Bound, rank.Peak-model[i])
					messages := 0
					for action := range result.Plan.All(i) {
						if kind := action.Kind(); kind == schedule.RecvF || kind == schedule.RecvB {
							messages++
						}
					}
					for _, m := range ends[i].messages {
						if m.tag.Content != transport.Output && m.tag.Content != transport.Gradient {
							continue // it belongs to the table that the first and the last stage share
						}
						messages--
						length := lengths[now.classes[now.order[result.Plan.BatchIndex(m.tag.Microbatch)]]]
						require.Equal(t, []int64{int64(length * tiny.Width * 4)}, m.bytes)
					}
					require.Zero(t, messages, "of the plan without the received ones")
					if batch == 0 {
						control[i] = ends[i].control
					}
					require.InDelta(t, control[i], ends[i].control, 2) // digits of the numbers of the step and of its microbatches
				}
				now, plan = then, thenPlan
			}

			wrong := unequal{append([]int{}, now.classes...), now.order}
			wrong.classes[0] = (wrong.classes[0] + 1) % len(lengths)
			_, err = group.Step(t.Context(), len(now.order), runner.InOrder(runner.IndexedShapes(func(ctx context.Context, entry batchctx.Entry[T]) error {
				return (&source{dev: r.devs[entry.Rank()], length: func(m int) int { return lengths[wrong.classes[m]] }}).Next(ctx, entry)
			}, func(m int) int { return now.classes[m] }), [][]int{now.order}))
			require.ErrorIs(t, err, memory.ErrUnplanned)
			_, err = group.Step(ctx, len(now.order), now.source(r, lengths))
			require.NoError(t, err, "the next step")

			// Without shapes, the plan holds for any length, and its peak is an upper bound.
			envelope := runStep(t, group, len(now.order), r.sources(func(m int) int { return lengths[now.classes[m]] }))
			require.True(t, envelope.Planned)
			for i, rank := range envelope.Ranks {
				require.LessOrEqual(t, rank.Peak, rank.PeakPlanned)
				require.LessOrEqual(t, plan.Ranks[i].Bound, rank.PeakPlanned-model[i])
			}
			require.NoError(t, group.Close())
			require.NoError(t, links.Close())
		}
	}
}

// BenchmarkPrepare measures steps of two ranks with new lengths in three modes: the step plans its memory
// itself, it was prepared before, or the next step is prepared while it runs. The modes alternate, so that
// other load of the machine affects them equally. The benchmark reports the median times of a step and of
// Prepare.
func BenchmarkPrepare(b *testing.B) {
	lengths := []int{8, 12, 16, 24, 32, 48, 56, 64}
	s := setup{schedule: "1f1b", ranks: 2, stages: 2, model: transformer.Config{Vocabulary: 256, Width: 64, Layers: 8, Heads: 4, Context: 64, Seed: 1, Untied: true}, capacity: 1}
	profile := profileOf(b, s, lengths...)
	r := newRig(b, s, false)
	group := r.group(b, profile)
	random := rand.New(rand.NewPCG(1, 0))
	next := func() (batch unequal) {
		for range 32 {
			batch.classes = append(batch.classes, random.IntN(len(lengths)))
		}
		batch.order = random.Perm(32)
		return batch
	}
	medians := map[string][]float64{}
	timed := func(name string, do func()) {
		start := time.Now()
		do()
		medians[name] = append(medians[name], float64(time.Since(start).Microseconds())/1000)
	}
	for b.Loop() {
		step := func(batch unequal) func() {
			return func() {
				_, err := group.Step(b.Context(), 32, batch.source(r, lengths))
				require.NoError(b, err)
			}
		}
		timed("itself-ms", step(next()))
		now := next()
		timed("prepare-ms", func() { prepare(b, group, 32, now.source(r, lengths)) })
		timed("before-ms", step(now))
		now = next()
		prepare(b, group, 32, now.source(r, lengths))
		var beside sync.WaitGroup
		then := next().source(r, lengths)
		beside.Go(func() { prepare(b, group, 32, then) })
		timed("beside-ms", step(now))
		beside.Wait()
	}
	for name, list := range medians {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], name)
	}
}
