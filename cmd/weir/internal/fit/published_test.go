package fit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

// published is a run of Megatron-LM's own tests on H100 (tests/functional_tests/test_cases,
// golden values of August 2026): the bytes that PyTorch had allocated on the last rank after a
// step and at its peak.
type published struct {
	name            string
	flags           string
	data, m         int
	schedule        string
	stages          int // of a rank
	allocated, peak int64
	off             float64 // relative error of the predicted bytes of a step, in percent
	theirs          float64 // relative error of Megatron-LM's formula, in percent
}

const (
	gpt7b   = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention true --num-query-groups 8 --untie-embeddings-and-output-weights --seq-length 8192 --max-position-embeddings 8192 --vocab-size 131073 --use-distributed-optimizer --no-gradient-accumulation-fusion --bf16 --use-mcore-models"
	gpt15b  = "--num-layers 32 --hidden-size 6144 --num-attention-heads 48 --group-query-attention true --num-query-groups 8 --untie-embeddings-and-output-weights --micro-batch-size 4 --seq-length 4096 --vocab-size 256000 --position-embedding-type rope --disable-bias-linear --hidden-dropout 0.0 --sequence-parallel --use-distributed-optimizer --bf16 --use-mcore-models"
	mixtral = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention true --num-query-groups 8 --untie-embeddings-and-output-weights --micro-batch-size 1 --seq-length 4096 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --hidden-dropout 0.0 --sequence-parallel --use-distributed-optimizer --bf16 --use-mcore-models --num-experts 8 --moe-router-topk 2 --tensor-model-parallel-size 2 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --vocab-size 32000"
	small   = "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 4 --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --bf16 --use-mcore-models --no-gradient-accumulation-fusion"
)

// runs lists the published runs with enough information. If a run does not state the number of replicas,
// data is the number that agrees with the bytes after a step. The bytes of a step do not depend on it.
var runs = []published{
	{name: "GPT 7B, TP 1, PP 4, 8 stages a rank", flags: gpt7b + " --micro-batch-size 1 --pipeline-model-parallel-size 4", data: 2, m: 4, schedule: "interleaved", stages: 8, allocated: 24808996864, peak: 60720852992, off: 2.8, theirs: 11.6},
	{name: "GPT 7B, TP 4", flags: gpt7b + " --micro-batch-size 2 --tensor-model-parallel-size 4", data: 2, m: 2, schedule: "1f1b", stages: 1, allocated: 20663519232, peak: 57143791616, off: -0.4, theirs: -43.8},
	{name: "GPT 15B, TP 8", flags: gpt15b + " --tensor-model-parallel-size 8", data: 16, m: 4, schedule: "1f1b", stages: 1, allocated: 13269043200, peak: 28160194560, off: -0.9, theirs: 6.4},
	{name: "GPT 15B, TP 4, PP 2, 2 stages a rank", flags: gpt15b + " --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2", data: 16, m: 8, schedule: "interleaved", stages: 2, allocated: 12795789312, peak: 28489568256, off: 52.1, theirs: 118.5},
	{name: "Mixtral 8x7B, TP 2, PP 4, EP 8, ETP 1, 8 stages a rank", flags: mixtral + " --pipeline-model-parallel-size 4", data: 8, m: 16, schedule: "interleaved", stages: 8, allocated: 19743387648, peak: 35505844224, off: 0.3, theirs: -40.2},
	{name: "GPT 76M, TP 1, PP 1, full recompute", flags: small + " --recompute-granularity full", data: 8, m: 1, schedule: "1f1b", stages: 1, allocated: 1259751936, peak: 2561334272, off: -0.3, theirs: 29.8},
	{name: "GPT 76M, TP 1, PP 4, 3 stages a rank", flags: small + " --pipeline-model-parallel-size 4 --attention-backend unfused", data: 2, m: 4, schedule: "interleaved", stages: 3, allocated: 776656384, peak: 4161191424, off: 0.6, theirs: -68.1},
	{name: "GPT 76M, TP 2, PP 2", flags: small + " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", data: 2, m: 4, schedule: "1f1b", stages: 1, allocated: 517243392, peak: 1428171264, off: 0.4, theirs: -52.8},
	{name: "GPT 76M, TP 4, ZeRO 1", flags: small + " --tensor-model-parallel-size 4 --use-distributed-optimizer", data: 2, m: 4, schedule: "1f1b", stages: 1, allocated: 299204096, peak: 1042465280, off: -2.3, theirs: -43.2},
	{name: "GPT 76M, TP 4, unfused attention", flags: small + " --tensor-model-parallel-size 4 --use-distributed-optimizer --attention-backend unfused", data: 2, m: 4, schedule: "1f1b", stages: 1, allocated: 299728384, peak: 1543416320, off: -1.2, theirs: -66.0},
}

func (run *published) predict(t *testing.T) (*fit.Config, *fit.RankMemory) {
	c := readConfig(t, strings.NewReader(run.flags), nil)
	plan := plantest.Named(t, run.schedule, c.Ranks, c.Ranks*run.stages, run.m)
	setup := c.Setup
	setup.Data = run.data
	out, err := fit.Predict(context.Background(), fit.Request{Model: &c.Model, Setup: setup, Plan: plan, Capacity: 1})
	require.NoError(t, err, run.name)
	return c, &out.Ranks[len(out.Ranks)-1]
}

// formula is Megatron-LM's estimate of activations on the first rank, in bytes.
func formula(c *fit.Config, run *published) float64 {
	m, s := &c.Model, &c.Setup
	inner := m.FFN
	if m.Experts > 0 {
		inner = m.ExpertFFN
	}
	sbh := float64(s.Sequence * s.Microbatch * m.Hidden)
	bytes := sbh * (18 + 4*float64(inner)/float64(m.Hidden)) * float64(m.Layers)
	bytes += 8 * float64(s.Sequence*s.Microbatch*c.Ranks) // tokens and positions
	bytes += sbh * float64(c.Ranks)                       // dropout of the embedding
	if run.stages > 1 {
		bytes *= 1 + float64(c.Ranks-1)/float64(c.Ranks*run.stages)
	} else {
		bytes *= min(1, float64(run.m)/float64(c.Ranks))
	}
	if c.Ranks == 1 {
		bytes += sbh * 4 * (1 + float64(m.Vocabulary)/float64(m.Hidden))
	}
	return bytes / float64(s.Tensor)
}

// TestPublished compares predictions with the published values. The relative errors must be those
// of each run, to a tenth of a percent.
func TestPublished(t *testing.T) {
	for i := range runs {
		run := &runs[i]
		c, r := run.predict(t)
		share := func(got, want int64) float64 { return 100 * (float64(got)/float64(want) - 1) }
		t.Logf("| %s | %.2f | %.2f | %+.1f %% | %.2f | %.2f | %+.1f %% | %+.1f %% | %+.1f %% | %s", run.name, gb(run.allocated), gb(r.Static.Total()), share(r.Static.Total(), run.allocated),
			gb(run.peak-run.allocated), gb(r.Step()), share(r.Step(), run.peak-run.allocated), share(int64(formula(c, run)), run.peak-run.allocated), share(r.Static.Total()+r.Step(), run.peak), r.Peak)
		require.InDelta(t, run.off, share(r.Step(), run.peak-run.allocated), 0.06, run.name)
		require.InDelta(t, run.theirs, share(int64(formula(c, run)), run.peak-run.allocated), 0.06, run.name)
	}
}

func gb(n int64) float64 { return float64(n) / 1e9 }

// TestFromSnapshots writes the snapshot that PyTorch's allocator would record of one microbatch on
// one rank and makes a profile of it. It expects the peak of the tables for one microbatch, and no
// lower peak for several.
func TestFromSnapshots(t *testing.T) {
	m := fit.Model{Layers: 4, Hidden: 64, Heads: 4, KVHeads: 4, HeadDim: 16, FFN: 256, Vocabulary: 100, LayerNorm: true}
	layers, sizes := fit.Composed(&m, fit.Setup{Sequence: 64, Microbatch: 2}, []int{4})
	composed, err := fit.Compose(layers, 16, 16, sizes)
	require.NoError(t, err)

	a := cachingsim.New(cachingsim.Config{History: true})
	_, err = a.Malloc(cachingsim.Request{Bytes: 12345}) // weights
	require.NoError(t, err)
	live := map[int]int64{}
	for change := range laid(t, plantest.Named(t, "gpipe", 1, 1, 1), composed, 0).All(0) {
		if !change.Alloc {
			require.NoError(t, a.Free(live[change.Serial]))
			continue
		}
		live[change.Serial], err = a.Malloc(cachingsim.Request{Bytes: change.Bytes, Frames: []snapshot.Frame{{Name: "forward", Filename: "model.py", Line: 3}}})
		require.NoError(t, err)
	}
	profile, resident, err := fit.FromSnapshots([]*snapshot.Snapshot{a.Snapshot()}, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{12345}, resident)
	require.Equal(t, "forward, model.py:3", profile.Shapes[0].Stages[0].Buffers[0].Name)
	const logits = 2 * 128 * 100
	for n := range int64(4) { // with gpipe, each of n further microbatches keeps as many bytes as are live at the peak of one
		plan := plantest.Named(t, "gpipe", 1, 1, int(n)+1)
		want := laid(t, plan, composed, 0).Ranks[0].Peak.Bytes
		require.Equal(t, want+n*logits, laid(t, plan, profile, 0).Ranks[0].Peak.Bytes, "logits that F frees are taken to be kept")
	}

	_, _, err = fit.FromSnapshots([]*snapshot.Snapshot{{}}, 2)
	require.ErrorIs(t, err, fit.ErrSnapshot)
	require.ErrorContains(t, err, "_record_memory_history")
	_, _, err = fit.FromSnapshots(make([]*snapshot.Snapshot, 2), 3)
	require.ErrorContains(t, err, "there are 2 snapshots for 3 stages")
}
