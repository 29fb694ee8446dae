package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/stages/transformer"
)

// small is the model of the tests.
var small = trainee{
	Config: transformer.Config{
		Vocabulary: 32, Width: 64, Layers: 2, Heads: 2, Context: 16, Seed: 1,
		FP8: fp8.DelayedScaling{Format: fp8.Hybrid},
	},
	tokens: 16, microbatches: 3, rounds: 1,
}

// Every variant except Weir keeps some memory allocated while memory is lent. Clearing by hand
// frees exactly the copies of the weights; the scales and the workspace stay.
func TestLending(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, printLending(t.Context(), &small, true, &out))
	var all []lent
	require.NoError(t, json.Unmarshal(out.Bytes(), &all))
	require.Len(t, all, 4)
	require.Equal(t, lent{Name: "Weir", Step: all[3].Step, Memory: all[3].Memory}, all[3], "nothing allocated, nothing reserved")

	// Blocks of the allocator are multiples of 512 bytes.
	rounded := func(bytes int) int64 { return int64(bytes+511) / 512 * 512 }
	var codes, scales int64
	for _, matrix := range [][2]int{{64, 192}, {64, 64}, {64, 256}, {256, 64}} {
		encoding := small.FP8.Encoding(fp8.Weight)
		codes += int64(small.Layers) * (rounded(encoding.Bytes(matrix[0], matrix[1])) + rounded(encoding.Bytes(matrix[1], matrix[0])))
		scales += int64(small.Layers) * 2 * (rounded(scale) + rounded(history/2))
	}
	kept, cleared, expanding := all[0], all[1], all[2]
	require.Equal(t, codes, kept.Allocated-cleared.Allocated, "the copies of weights are what is cleared")
	require.Greater(t, cleared.Allocated, scales, "and the workspace")
	require.Equal(t, cleared.Allocated, expanding.Allocated)
	for _, l := range all[:3] {
		require.GreaterOrEqual(t, l.Reserved, l.Allocated, l.Name)
		require.Positive(t, l.Memory, l.Name)
		require.Greater(t, l.Step, l.Memory, l.Name)
	}
	require.GreaterOrEqual(t, kept.Reserved, cleared.Reserved)

	out.Reset()
	require.NoError(t, small.lendingTable(&out, all))
	require.Contains(t, out.String(), "in FP8 (delayed), width 64, 2 blocks")
	require.Regexp(t, `\nWeir +0 B +0 B `, out.String())
}

// A dry run contains the step's copies of weights, two of each, and marks no other buffer.
func TestCopiesAreMarked(t *testing.T) {
	host, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	step, err := small.record(t.Context(), host)
	require.NoError(t, err)
	require.NoError(t, host.Close())
	require.NotEmpty(t, step.resident)
	copies, others := 0, 0
	for _, e := range step.events {
		switch {
		case step.copies[e.Serial] && e.Alloc:
			copies++
			require.Equal(t, memory.FP8, e.Class)
		case e.Class == memory.FP8 && e.Alloc:
			others++
		}
	}
	require.Equal(t, 2*4*small.Layers, copies)
	require.Greater(t, others, copies, "activations and gradients")
}

// The device executes the calls and refuses to exceed its size.
func TestDriver(t *testing.T) {
	d, err := newDriver(8 << 20)
	require.NoError(t, err)
	calls := func(action snapshot.Action, bytes int64) error {
		_, err := d.run([]snapshot.TraceEntry{{Action: action, Size: bytes}})
		return err
	}
	require.NoError(t, calls(snapshot.SegmentAlloc, 5<<20))
	require.NoError(t, calls(snapshot.Alloc, 1<<20), "inside the segment")
	require.Equal(t, 3, d.mapped)
	require.NoError(t, calls(snapshot.SegmentUnmap, 4<<20))
	require.Equal(t, 1, d.mapped)
	require.Error(t, calls(snapshot.SegmentMap, 1<<30))
	require.NoError(t, d.dev.Close())
}
