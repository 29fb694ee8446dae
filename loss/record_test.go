package loss_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/loss"
)

// randomRecs returns the contributions of a step, some of them not finite if bad is set.
func randomRecs(r *rand.Rand, n int, bad bool) []rec {
	recs := make([]rec, n)
	for i := range recs {
		recs[i] = rec{r.IntN(5), r.IntN(1000), finite(r), math.Abs(finite(r))}
		if r.IntN(2) == 0 {
			recs[i].sum, recs[i].weight = r.NormFloat64(), r.Float64()*100
		}
		if r.IntN(4) == 0 {
			recs[i].weight = 0
		}
		if bad && r.IntN(10) == 0 {
			recs[i].sum = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
		}
	}
	return recs
}

// TestMergeIsExact checks L9: for any order of a step's contributions, any split over ranks and
// any grouping, the merged words and the totals are the same.
func TestMergeIsExact(t *testing.T) {
	r := random(t)
	for trial := range 60 {
		recs := randomRecs(r, 1+r.IntN(100), trial%2 == 0)
		one := ledger(t, defs())
		record(t, one, recs...)
		var want loss.Record
		one.Snapshot(&want)
		totals, err := reduce(one)
		require.NoError(t, err)

		ranks := make([]*loss.Ledger, 1+r.IntN(6))
		for i := range ranks {
			ranks[i] = ledger(t, defs())
		}
		for _, i := range r.Perm(len(recs)) {
			record(t, ranks[r.IntN(len(ranks))], recs[i])
		}
		// Merge two at a time, in random grouping, and every second time through bytes.
		parts := make([]*loss.Record, len(ranks))
		for i, l := range ranks {
			parts[i] = new(loss.Record)
			l.Snapshot(parts[i])
		}
		for len(parts) > 1 {
			i := r.IntN(len(parts) - 1)
			b, err := parts[i+1].AppendBinary(nil)
			require.NoError(t, err)
			var other loss.Record
			require.NoError(t, other.UnmarshalBinary(b))
			require.NoError(t, parts[i].Merge(&other))
			parts = append(parts[:i+1], parts[i+2:]...)
			r.Shuffle(len(parts), func(a, b int) { parts[a], parts[b] = parts[b], parts[a] })
		}
		require.Equal(t, want, *parts[0])
		for _, l := range ranks {
			got, err := l.Totals(parts[0])
			require.NoError(t, err)
			require.Equal(t, totals, got, "the same on every rank")
		}
	}
}

func TestMergeShapes(t *testing.T) {
	snapshot := func(set []loss.Def) *loss.Record {
		l := ledger(t, set)
		var r loss.Record
		l.Snapshot(&r)
		return &r
	}
	change := func(f func([]loss.Def)) []loss.Def { d := defs(); f(d); return d }
	base := snapshot(defs())
	for name, set := range map[string][]loss.Def{
		"fewer":       defs()[:4],
		"reduction":   change(func(d []loss.Def) { d[norm].Reduction = loss.Sum }),
		"name":        change(func(d []loss.Def) { d[norm].Name = "n" }),
		"coefficient": change(func(d []loss.Def) { d[aux].Coefficient = 0.02 }),
		"objective": change(func(d []loss.Def) {
			d[ce].Objective, d[ce].Metric, d[norm].Objective, d[norm].Metric = false, true, true, false
		}),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, base.Merge(snapshot(set)), loss.ErrShape)
			require.Equal(t, snapshot(defs()), base, "unchanged")
		})
	}
	require.ErrorIs(t, base.Merge(new(loss.Record)), loss.ErrShape)

	b, err := base.AppendBinary(nil)
	require.NoError(t, err)
	b[16+568*norm] = byte(loss.Sum) // corrupted: the right shape with another reduction
	var forged loss.Record
	require.NoError(t, forged.UnmarshalBinary(b))
	require.EqualError(t, base.Merge(&forged), "loss: records of different losses: cell 2 is a mean here and a sum there")

	var collect loss.Record
	require.NoError(t, collect.Merge(base), "the zero Record takes the first shape")
	require.Equal(t, *base, collect)
}

func TestMergeOwnsItsMemory(t *testing.T) {
	l := ledger(t, defs())
	record(t, l, rec{ce, 0, 1, 1})
	var a, b loss.Record
	l.Snapshot(&a)
	require.NoError(t, b.Merge(&a))
	require.NoError(t, b.Merge(&a))
	var again loss.Record
	l.Snapshot(&again)
	require.Equal(t, again, a)
}

// wire returns the bytes of a record with a loss of every reduction, one of them not finite.
func wire(t testing.TB) []byte {
	l := ledger(t, defs())
	record(t, l, rec{ce, 0, 6, 2}, rec{ce, 1, -7.5, 1}, rec{aux, 9, math.NaN(), 1}, rec{peak, 0, 3, 1}, rec{low, 0, -1e300, 1})
	var r loss.Record
	l.Snapshot(&r)
	b, err := r.AppendBinary(nil)
	require.NoError(t, err)
	return b
}

func TestUnmarshalRefuses(t *testing.T) {
	const header, cell, exact = 16, 568, 268
	good := wire(t)
	require.Len(t, good, header+5*cell)
	at := func(c, off int) int { return header + c*cell + off }
	for _, c := range []struct {
		name string
		edit func(b []byte) []byte
		want string
	}{
		{"empty", func(b []byte) []byte { return nil }, "0 bytes, the header alone has 16"},
		{"magic", func(b []byte) []byte { b[0] = 'X'; return b }, `starts with "XLR\x01", expected "WLR\x01" (version 1): run the same build on all ranks`},
		{"version", func(b []byte) []byte { b[3] = 2; return b }, `starts with "WLR\x02", expected "WLR\x01" (version 1): run the same build on all ranks`},
		{"huge count", func(b []byte) []byte { binary.LittleEndian.PutUint32(b[4:], 1<<31); return b }, "2147483648 cells, at most 16384 are allowed"},
		{"the most cells", func(b []byte) []byte { binary.LittleEndian.PutUint32(b[4:], loss.MaxDefs); return b }, "2856 bytes for 16384 cells, expected 9306128"},
		{"short", func(b []byte) []byte { return b[:len(b)-1] }, "2855 bytes for 5 cells, expected 2856"},
		{"long", func(b []byte) []byte { return append(b, 0) }, "2857 bytes for 5 cells, expected 2856"},
		{"shape", func(b []byte) []byte { clear(b[8:16]); return b }, "shape 0"},
		{"reduction", func(b []byte) []byte { b[at(0, 0)] = 7; return b }, "cell 0: unknown reduction 7"},
		{"flag", func(b []byte) []byte { b[at(3, 1)] = 2; return b }, "cell 3: flags 02000000000000, expected 0 or 1 and six zeros"},
		{"reserved", func(b []byte) []byte { b[at(3, 7)] = 1; return b }, "cell 3: flags 01000000000001, expected 0 or 1 and six zeros"},
		{"count", func(b []byte) []byte { b[at(0, 15)] = 0x80; return b }, "cell 0: 9223372036854775810 records, expected at most 9007199254740992"},
		{"microbatch", func(b []byte) []byte { b[at(0, 16)] = 0xfe; return b }, "cell 0: microbatch -2, expected at least -1"},
		{"sum out of range", func(b []byte) []byte { b[at(1, 32+exact-1)] = 0x7f; return b }, "cell 1: a sum whose last limb is out of range, or a negative weight"},
		{"negative weight", func(b []byte) []byte {
			for i := range 8 {
				b[at(1, 32+2*exact-1-i)] = 0xff
			}
			return b
		}, "cell 1: a sum whose last limb is out of range, or a negative weight"},
		{"extreme of a mean", func(b []byte) []byte { b[at(0, 1)] = 1; return b }, "cell 0: a mean with the extreme value 0"},
		{"extreme not finite", func(b []byte) []byte { b[at(3, 30)], b[at(3, 31)] = 0xf0, 0x7f; return b }, "cell 3: a max with the extreme value +Inf"},
		{"extreme without its flag", func(b []byte) []byte { b[at(3, 1)] = 0; return b }, "cell 3: an extreme value that is marked absent"},
		{"sum of a maximum", func(b []byte) []byte { b[at(3, 32)] = 1; return b }, "cell 3: a max with a sum"},
		{"contents without a record", func(b []byte) []byte { b[at(0, 8)] = 0; return b }, "cell 0: contents without a record"},
		{"an extreme without a record", func(b []byte) []byte {
			clear(b[at(3, 8):at(3, 16)])
			clear(b[at(3, 32+exact):at(4, 0)])
			return b
		}, "cell 3: contents without a record"},
		{"a microbatch without a record", func(b []byte) []byte {
			clear(b[at(1, 8):at(1, 16)])
			clear(b[at(1, 16):at(1, 24)])
			clear(b[at(1, 32):at(2, 0)])
			return b
		}, "cell 1: contents without a record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r loss.Record
			require.NoError(t, r.UnmarshalBinary(good))
			err := r.UnmarshalBinary(c.edit(append([]byte(nil), good...)))
			require.ErrorIs(t, err, loss.ErrFormat)
			require.EqualError(t, err, "loss: not a record: "+c.want)
			_, err = r.AppendBinary(nil)
			require.ErrorIs(t, err, loss.ErrShape, "empty after a failure")
		})
	}
}

// TestShapeHasTheReduction checks that a maximum does not merge with a minimum of the same
// name.
func TestShapeHasTheReduction(t *testing.T) {
	var a, b loss.Record
	least := ledger(t, []loss.Def{{Name: "x", Reduction: loss.Min, Metric: true}})
	least.Snapshot(&a)
	ledger(t, []loss.Def{{Name: "x", Reduction: loss.Max, Metric: true}}).Snapshot(&b)
	require.ErrorIs(t, a.Merge(&b), loss.ErrShape)
	require.Zero(t, least.Count(1), "outside of the set")
	require.Zero(t, least.Weight(1))
}

func TestAppendBinaryReusesMemory(t *testing.T) {
	var r loss.Record
	require.NoError(t, r.UnmarshalBinary(wire(t)))
	buf := make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		b, _ := r.AppendBinary(buf)
		_ = r.UnmarshalBinary(b)
	}))
}

// FuzzRecord: every accepted record encodes to the same bytes, merges, and gives totals with
// only finite numbers.
func FuzzRecord(f *testing.F) {
	f.Add(wire(f))
	f.Add(wire(f)[:16])
	l := ledger(f, defs())
	var own loss.Record
	l.Snapshot(&own)
	b, err := own.AppendBinary(nil)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r loss.Record
		if r.UnmarshalBinary(data) != nil {
			return
		}
		again, err := r.AppendBinary(nil)
		require.NoError(t, err)
		require.Equal(t, data, again)

		l := ledger(t, defs())
		var own loss.Record
		require.NoError(t, l.Finish(&own))
		if err := own.Merge(&r); err != nil {
			require.ErrorIs(t, err, loss.ErrShape)
			return
		}
		totals, err := l.Totals(&own)
		require.NoError(t, err)
		for _, v := range totals.Values {
			for _, x := range []float64{v.Value, v.Sum, v.Weight} {
				require.Zero(t, x-x, "%+v", v)
			}
		}
		require.Equal(t, totals.Outcome == loss.Stepped, totals.Divisor > 0)
	})
}

// TestFixtures compares the records that ranks exchange with those of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "record-%d.bin", Mark: "WLR%c", Number: 1, Remedy: "run the same build on all ranks",
		Write: func(t *testing.T) []byte { return wire(t) },
		Read:  func(b []byte) error { return new(loss.Record).UnmarshalBinary(b) },
	}.Test(t)
}
