package memrecords_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/memrecords"
	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
)

// Any log can be shown in every form, and has no difference from itself.
func FuzzShow(f *testing.F) {
	f.Add([]byte(`{"step":1,"rank":0,"microbatch":0,"allocated":4096,"reserved":8192,"peak":6144}
{"step":1,"rank":0,"microbatch":1,"allocated":9223372036854775807,"reserved":8192,"peak":6384}
{"step":1,"rank":9,"microb`))
	var log bytes.Buffer
	writer := memlog.New(&log)
	for _, r := range some() {
		writer.Sample(&r.Sample)
	}
	f.Add(log.Bytes())
	f.Add([]byte(`{"schema":1,"fp8":{"step":7,"role":"input","tensors":8,"frozen":1,"non_finite":2,"saturated":18446744073709551615,"underflowed":4,"least_scale":"NaN","greatest_scale":"+Inf"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, diff := &memreport.Log{}, &memrecords.Diff{}
		var comma, trace bytes.Buffer
		sinks := []memrecords.Sink{memrecords.NewCSV(&comma), memrecords.NewTrace(&trace)}
		for record, err := range memlog.Read(bytes.NewReader(text)) {
			if err != nil {
				continue
			}
			if all.Add(&record) != nil {
				return // too many ranks
			}
			for _, sink := range sinks {
				require.NoError(t, sink.Add(&record))
			}
			for log := range 2 {
				require.NoError(t, diff.Add(log, &record))
			}
		}
		for _, sink := range sinks {
			require.NoError(t, sink.Close())
		}
		require.Nil(t, diff.First())
		require.True(t, json.Valid(trace.Bytes()))
		rows, err := csv.NewReader(&comma).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 1+int(all.Records()))
		summary := all.Summary()
		_, err = json.Marshal(summary)
		require.NoError(t, err)
		require.NoError(t, summary.Text(io.Discard))
		var page bytes.Buffer
		require.NoError(t, all.Page("fuzz").Write(&page))
		require.NotContains(t, page.String(), "NaN")
	})
}
