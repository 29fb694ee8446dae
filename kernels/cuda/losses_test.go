package cuda_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
)

// A cell of the device has the words of a Ledger for every float64: zeros, subnormal numbers,
// the largest, both signs, and non-finite ones.
func TestLossCellsAreExact(t *testing.T) {
	const seed, n = 11, 300
	rng := rand.New(rand.NewPCG(seed, 0))
	d, _ := computes(t, seed, cuda.Float32)
	cells, err := d.NewLossCells(1)
	require.NoError(t, err)
	require.Equal(t, memory.Loss, d.Class(cells))
	require.NoError(t, d.ClearLossCells(cells))
	defs := []loss.Def{{Name: "loss", Reduction: loss.Sum, Metric: true}}
	want, err := loss.NewLedger(defs)
	require.NoError(t, err)
	for i := range n {
		sum := math.Float64frombits(rng.Uint64() &^ (1 << 52)) // never the exponent of infinity
		switch i {
		case 17:
			sum = math.Float64frombits(1)
		case 18:
			sum = -math.MaxFloat64
		case 19:
			sum = math.Copysign(0, -1)
		}
		if i == 40 || i == 50 {
			sum = math.Inf(1)
		}
		weight := math.Float64frombits(rng.Uint64() >> 2)
		mb := (i * 7) % n
		require.NoError(t, want.Record(0, mb, sum, weight))
		two := allocated(t, d, memory.Workspace, kernels.Int32, 4)
		require.NoError(t, d.WriteInt32(two, halves(sum, weight)))
		require.NoError(t, d.AddLoss(cells, two, mb))
		_, err = d.Release(two)
		require.NoError(t, err)
	}
	require.Equal(t, wire(t, want), wire(t, joined(t, d, cells, defs)), "seed %d", seed)

	for _, weight := range []float64{-1, math.NaN(), math.Inf(1)} {
		require.NoError(t, d.ClearLossCells(cells))
		two := allocated(t, d, memory.Workspace, kernels.Int32, 4)
		require.NoError(t, d.WriteInt32(two, halves(1, weight)))
		require.NoError(t, d.AddLoss(cells, two, 5))
		require.NoError(t, d.AddLoss(cells, two, 4))
		words := make([]int64, loss.DeviceWords)
		require.NoError(t, d.ReadLossCells(words, cells))
		ledger, err := loss.NewLedger(defs)
		require.NoError(t, err)
		err = ledger.Join(0, words)
		require.ErrorIs(t, err, loss.ErrWeight)
		require.ErrorContains(t, err, `for "loss" at microbatch 4`)
	}
	require.NoError(t, d.Close())
}

// Carries are propagated before they overflow a word, after 2^29 additions as on the host.
func TestLossCellsPropagateCarries(t *testing.T) {
	const most = 1<<29 - 1
	d, _ := computes(t, 1, cuda.Float32)
	cells, err := d.NewLossCells(1)
	require.NoError(t, err)
	words := make([]int64, loss.DeviceWords)
	for i := range 65 { // limbs that are almost full, of both signs; weights are not negative
		words[i], words[67+i] = most*math.MaxUint32, most*math.MaxUint32
		if i%3 == 1 {
			words[i] = -words[i]
		}
	}
	words[66], words[67+66] = most, most
	raw := make([]int32, 2*len(words))
	for i, w := range words {
		raw[2*i], raw[2*i+1] = int32(w), int32(w>>32)
	}
	require.NoError(t, d.WriteInt32(cells, raw))
	defs := []loss.Def{{Name: "loss", Reduction: loss.Sum, Metric: true}}
	want, err := loss.NewLedger(defs)
	require.NoError(t, err)
	require.NoError(t, want.Join(0, words))
	require.NoError(t, want.Record(0, 0, 1.5, 2))
	two := allocated(t, d, memory.Workspace, kernels.Int32, 4)
	require.NoError(t, d.WriteInt32(two, halves(1.5, 2)))
	require.NoError(t, d.AddLoss(cells, two, 0))
	require.NoError(t, d.ReadLossCells(words, cells))
	require.Zero(t, words[66]+words[67+66])
	for i, w := range slices.Concat(words[:65], words[67:67+65]) {
		require.True(t, w >= 0 && w <= math.MaxUint32, "limb %d is %#x", i, w)
	}
	require.Equal(t, wire(t, want), wire(t, joined(t, d, cells, defs)))
	require.NoError(t, d.Close())
}

// halves returns float64 as words.
func halves(x ...float64) (words []int32) {
	for _, x := range x {
		b := math.Float64bits(x)
		words = append(words, int32(b), int32(b>>32))
	}
	return words
}

// joined returns a Ledger with the contents of a cell.
func joined(t *testing.T, d *cuda.Device, cells kernels.Buffer, defs []loss.Def) *loss.Ledger {
	words := make([]int64, loss.DeviceWords)
	require.NoError(t, d.ReadLossCells(words, cells))
	ledger, err := loss.NewLedger(defs)
	require.NoError(t, err)
	require.NoError(t, ledger.Join(0, words))
	return ledger
}

// wire returns a Ledger's record as bytes.
func wire(t *testing.T, ledger *loss.Ledger) []byte {
	var record loss.Record
	ledger.Snapshot(&record)
	b, err := record.AppendBinary(nil)
	require.NoError(t, err)
	return b
}

// The device checks ids against the vocabulary without waiting if the host has written them,
// with the host's error; for ids that another device has sent it waits.
func TestIDs(t *testing.T) {
	d, fake := computes(t, 1, cuda.Float32)
	put := func(x ...int32) kernels.Buffer {
		b := allocated(t, d, memory.Entry, kernels.Int32, len(x))
		require.NoError(t, d.WriteInt32(b, x))
		return b
	}
	sent := func(x ...int32) kernels.Buffer {
		var wire bytes.Buffer
		from := put(x...)
		require.NoError(t, d.Encode(&wire, from))
		b, err := d.Decode(&wire, d.Size(from))
		require.NoError(t, err)
		return b
	}
	table, positions, x := filled(t, d, 5*2, 1), filled(t, d, 3*2, 2), filled(t, d, 3*2, 3)
	require.NoError(t, d.Sync())
	embed := func(ids kernels.Buffer) error {
		return d.Embed(kernels.Embed{IDs: ids, Table: table, Positions: positions, X: x, Tokens: 3, Width: 2, Vocabulary: 5})
	}
	for name, ids := range map[string]func(...int32) kernels.Buffer{"written": put, "received": sent} {
		good, low, high := ids(0, 4, 2), ids(1, -1, 2), ids(5, 1, 2)
		before := fake.Calls("Sync")
		require.NoError(t, embed(good), name)
		for _, c := range []struct {
			ids  kernels.Buffer
			says string
		}{{low, "IDs[1] is -1, the vocabulary has 5"}, {high, "IDs[0] is 5, the vocabulary has 5"}} {
			err := embed(c.ids)
			require.ErrorIs(t, err, kernels.ErrShape)
			require.ErrorContains(t, err, c.says, name)
		}
		want := 0
		if name == "received" {
			want = 3
		}
		require.Equal(t, want, fake.Calls("Sync")-before, name)
	}
	again := put(0, 1, 9)
	require.NoError(t, d.WriteInt32(again, []int32{2, 1, 0}))
	require.NoError(t, embed(again), "the last write counts")
	require.NoError(t, d.WriteInt32(again, []int32{4, 7}))
	require.ErrorContains(t, embed(again), "IDs[1] is 7", "after a partial write the device reads the ids")
	require.NoError(t, d.Close())
}
