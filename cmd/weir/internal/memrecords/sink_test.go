package memrecords_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/memrecords"
	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// minimal returns a record of the minimal form.
func minimal(step int64, rank, microbatch int, allocated int64) *memlog.Record {
	r := &memlog.Record{}
	r.Step, r.Rank, r.Microbatch, r.Live, r.Peak, r.Reserved = step, rank, microbatch, allocated, allocated+14, allocated+20
	return r
}

// excessive returns a record of schema 1 with an excess in class Saved.
func excessive(step int64, rank, microbatch int, excess, growth int64) *memlog.Record {
	r := &memlog.Record{Schema: 1}
	r.Step, r.Rank, r.Microbatch, r.Kind = step, rank, microbatch, "B"
	r.Live, r.Peak, r.Reserved, r.Excess, r.Growth = 1000+excess, 1500+excess, 4096, excess, growth
	r.Classes[memory.Resident], r.Classes[memory.Saved] = 1000, excess
	return r
}

// some returns records of all kinds.
func some() []*memlog.Record {
	full := excessive(2, 1, 3, 240, 240)
	full.Time, full.Weight, full.WaitData, full.Stage = 5_000_001_500, 0.5, 7, 4
	full.PeakClasses[memory.Resident], full.PeakClasses[memory.Workspace] = 1000, 740
	full.Planned, full.LivePlanned, full.PeakPlanned = true, 1000, 1500
	full.Far, full.FarPeak, full.FarPlanned = 300, 400, 400
	odd := excessive(2, 1, 4, 240, 0)
	odd.Time, odd.Kind, odd.Weight = 5_000_003_500, "a \"b\",\nc", math.NaN()
	return []*memlog.Record{full, odd, minimal(2, 0, 0, 100), {Schema: 1, Owner: &memory.Info{Name: "left out"}}}
}

func sunk(t *testing.T, open func(io.Writer) memrecords.Sink, records []*memlog.Record) string {
	var out bytes.Buffer
	sink := open(&out)
	for _, r := range records {
		require.NoError(t, sink.Add(r))
	}
	require.NoError(t, sink.Close())
	return out.String()
}

func TestCSV(t *testing.T) {
	text := sunk(t, memrecords.NewCSV, some())
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, "time step rank microbatch stage action live live_planned peak peak_planned reserved excess growth weight wait_data "+
		"resident entry activation actgrad saved carry transfer workspace loss fp8 unsharded "+
		"peak_resident peak_entry peak_activation peak_actgrad peak_saved peak_carry peak_transfer peak_workspace peak_loss peak_fp8 peak_unsharded far far_peak far_planned replica", strings.Join(rows[0], " "))
	require.Equal(t, "5000001500 2 1 3 4 B 1240 1000 1740 1500 4096 240 240 0.5 7 1000 0 0 0 240 0 0 0 0 0 0 1000 0 0 0 0 0 0 740 0 0 0 300 400 400 ", strings.Join(rows[1], " "))
	require.Equal(t, "a \"b\",\nc", rows[2][5])
	require.Equal(t, "NaN", rows[2][13])
	require.Empty(t, strings.Join(rows[2][26:], ""), "the record does not say what its peak was")
	require.Equal(t, " 2 0 0   100  114  120", strings.TrimRight(strings.Join(rows[3], " "), " "))
	require.Equal(t, strings.Join(rows[0], ",")+"\n", sunk(t, memrecords.NewCSV, nil))
}

// Records of several replicas have their replica.
func TestReplicas(t *testing.T) {
	var records []*memlog.Record
	for rank := range 2 {
		r := minimal(0, rank, 0, 100)
		r.Replica, r.Replicated = rank, true
		records = append(records, r)
	}
	require.Regexp(t, `far_planned,replica\n.*,0\n.*,1\n$`, sunk(t, memrecords.NewCSV, records))
}

func TestTrace(t *testing.T) {
	type event struct {
		Phase string         `json:"ph"`
		Name  string         `json:"name"`
		Rank  int            `json:"pid"`
		Time  float64        `json:"ts"`
		Args  map[string]any `json:"args"`
	}
	var trace struct{ TraceEvents []event }
	require.NoError(t, json.Unmarshal([]byte(sunk(t, memrecords.NewTrace, some())), &trace))
	find := func(rank int, name string) (list []event) {
		for _, e := range trace.TraceEvents {
			if e.Rank == rank && e.Name == name {
				list = append(list, e)
			}
		}
		return list
	}
	require.Equal(t, []event{{"C", "live", 1, 0, map[string]any{"bytes": 1240.0}}, {"C", "live", 1, 2, map[string]any{"bytes": 1240.0}}}, find(1, "live"))
	require.Equal(t, []event{{"C", "peak, planned", 1, 0, map[string]any{"bytes": 1500.0}}}, find(1, "peak, planned"))
	require.Equal(t, []event{{"C", "peak, far", 1, 0, map[string]any{"bytes": 400.0}}}, find(1, "peak, far"))
	require.Equal(t, 240.0, find(1, "by class")[0].Args["saved"])
	require.Len(t, find(1, "peak by class"), 1)
	require.Equal(t, 740.0, find(1, "peak by class")[0].Args["workspace"])
	require.Equal(t, []event{{"C", "reserved", 0, 0, map[string]any{"bytes": 120.0}}}, find(0, "reserved"))
	require.Equal(t, map[string]any{"name": "rank 1"}, find(1, "process_name")[0].Args)

	require.NoError(t, json.Unmarshal([]byte(sunk(t, memrecords.NewTrace, nil)), &trace))

	sink := memrecords.NewTrace(io.Discard)
	for rank := range memreport.MaxRanks {
		require.NoError(t, sink.Add(minimal(0, rank, 0, 1)))
	}
	require.ErrorIs(t, sink.Add(minimal(0, -1, 0, 1)), memreport.ErrRanks)
}

// full is a writer that fails after some bytes, like a full disk.
type full struct{ room int }

var errFull = errors.New("disk full")

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestSinksSayThatTheDiskIsFull(t *testing.T) {
	for name, open := range map[string]func(io.Writer) memrecords.Sink{"csv": memrecords.NewCSV, "trace": memrecords.NewTrace} {
		for _, room := range []int{0, 10_000} {
			sink, err := open(&full{room}), error(nil)
			for range 1000 {
				if err = sink.Add(some()[0]); err != nil {
					break
				}
			}
			if err == nil {
				err = sink.Close()
			}
			require.ErrorIs(t, err, errFull, name)
		}
	}
	log := &memreport.Log{}
	require.NoError(t, log.Add(minimal(0, 0, 0, 1)))
	require.ErrorIs(t, log.Summary().Text(&full{}), errFull)
	require.ErrorIs(t, (*memrecords.Difference)(nil).Text(&full{}, "a", "b"), errFull)
}
