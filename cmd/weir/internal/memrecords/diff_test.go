package memrecords_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/memrecords"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// diff compares two logs, record by record in turn.
func diff(t *testing.T, a, b []*memlog.Record) *memrecords.Difference {
	d := &memrecords.Diff{}
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			require.NoError(t, d.Add(0, a[i]))
		}
		if i < len(b) {
			require.NoError(t, d.Add(1, b[i]))
		}
	}
	return d.First()
}

// ranks returns a log of two ranks, with their records alternating or one rank after the other.
func ranks(mixed bool) (list []*memlog.Record) {
	for i := range 20 {
		rank, mb := i%2, i/2
		if !mixed {
			rank, mb = i/10, i%10
		}
		list = append(list, excessive(0, rank, mb, 0, 0))
	}
	return list
}

func TestDiff(t *testing.T) {
	mixed := ranks(true)
	require.Nil(t, diff(t, mixed, mixed))
	require.Nil(t, diff(t, mixed, ranks(false)), "the order of ranks is chance")

	later := ranks(false)
	for _, r := range later {
		r.Time, r.WaitData = 99, 88
	}
	require.Nil(t, diff(t, mixed, later), "times differ from run to run")

	// Of two differences the earlier one counts.
	other := ranks(false)
	other[7].Live += 5
	other[13].Live, other[13].Peak, other[13].Kind, other[13].Classes[3] = 2000, 3000, "I", 6
	require.Equal(t, &memrecords.Difference{Rank: 1, Microbatch: 3, Record: 3, Fields: []memrecords.Field{
		{Name: "action", A: "B", B: "I"}, {Name: "live", A: int64(1000), B: int64(2000)}, {Name: "peak", A: int64(1500), B: int64(3000)},
		{Name: "actgrad", A: int64(0), B: int64(6)},
	}}, diff(t, mixed, other))

	require.Equal(t, &memrecords.Difference{Rank: 1, Microbatch: 7, Record: 7, Ended: "b"}, diff(t, mixed, ranks(false)[:17]))
	require.Equal(t, &memrecords.Difference{Rank: 0, Microbatch: 0, Ended: "a"}, diff(t, nil, mixed))

	// Peaks by class are compared if both logs have them.
	classed := [2]*memlog.Record{excessive(0, 0, 0, 0, 0), excessive(0, 0, 0, 0, 0)}
	classed[0].PeakClasses[memory.Saved] = 500
	require.Nil(t, diff(t, classed[:1], classed[1:]))
	classed[1].PeakClasses[memory.Workspace] = 500
	require.Equal(t, []memrecords.Field{{Name: "peak_saved", A: int64(500), B: int64(0)}, {Name: "peak_workspace", A: int64(0), B: int64(500)}},
		diff(t, classed[:1], classed[1:]).Fields)

	// Only the fields of the minimal form are compared.
	var bare []*memlog.Record
	for _, r := range mixed {
		m := minimal(r.Step, r.Rank, r.Microbatch, r.Live)
		m.Peak, m.Reserved = r.Peak, r.Reserved
		bare = append(bare, m)
	}
	require.Nil(t, diff(t, mixed, bare))
	bare[5].Reserved = 1
	require.Equal(t, "reserved", diff(t, mixed, bare).Fields[0].Name)
}

func TestDiffText(t *testing.T) {
	other := ranks(true)
	other[5].Live += 2048
	other[5].Kind = "\x1b"
	var out strings.Builder
	require.NoError(t, diff(t, ranks(true), other).Text(&out, "a.jsonl", "b.jsonl"))
	require.NoError(t, diff(t, ranks(true), other[:3]).Text(&out, "a.jsonl", "b.jsonl"))
	require.NoError(t, diff(t, nil, other[:3]).Text(&out, "a.jsonl", "b.jsonl"))
	require.NoError(t, diff(t, other, other).Text(&out, "a.jsonl", "b.jsonl"))
	require.Equal(t, `first difference: step 0, rank 1, microbatch 2
  action  B      \x1b   
  live    1,000  3,048  +2.0 KiB
first difference: step 0, rank 1, microbatch 1: b.jsonl has no such record, and a.jsonl has
first difference: step 0, rank 0, microbatch 0: a.jsonl has no such record, and b.jsonl has
the same, record by record
`, out.String())
}

// A log with its ranks in sequence waits for a log with mixed ranks, up to a limit.
func TestDiffWaitsOnlySoLong(t *testing.T) {
	d := &memrecords.Diff{}
	r := excessive(0, 0, 0, 0, 0)
	var err error
	added := 0
	for ; err == nil && added < 1<<20; added++ {
		err = d.Add(0, r)
	}
	require.ErrorIs(t, err, memrecords.ErrApart)
	require.Equal(t, 1<<18+1, added)
}
