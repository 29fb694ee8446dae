package memlog_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/memlog"
)

// The statistics of tensors in low precision are one line for each role, and are read as they
// were written.
func TestFP8(t *testing.T) {
	roles := []memlog.FP8{
		{Step: 7, Role: "input", Tensors: 8, Frozen: 1, NonFinite: 2, Saturated: 1 << 63, Underflowed: 4, LeastScale: 0.5, GreatestScale: 448},
		{Step: 7, Role: "weight"},
	}
	var out bytes.Buffer
	log := memlog.New(&out)
	for i := range roles {
		log.FP8(&roles[i])
	}
	require.NoError(t, log.Err())
	require.Equal(t, `{"schema":1,"fp8":{"step":7,"role":"input","tensors":8,"frozen":1,"non_finite":2,"saturated":9223372036854775808,"underflowed":4,"least_scale":0.5,"greatest_scale":448}}
{"schema":1,"fp8":{"step":7,"role":"weight","tensors":0,"frozen":0,"non_finite":0,"saturated":0,"underflowed":0,"least_scale":0,"greatest_scale":0}}
`, out.String())
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{{Schema: 1, FP8: &roles[0]}, {Schema: 1, FP8: &roles[1]}}, records)
	require.False(t, records[0].Sampled())

	_, faults = read(`{"schema":1,"fp8":{"step":7,"role":"input"}}
{"schema":1,"fp8":{"step":7,"role":"x","tensors":0,"frozen":0,"non_finite":-1,"saturated":0,"underflowed":0,"least_scale":0,"greatest_scale":0}}
`)
	require.Equal(t, []string{
		"memlog: not a line of a memory log: 1:19: expected a role in FP8 with all its fields, found none of these: tensors frozen non_finite saturated underflowed least_scale greatest_scale",
		"memlog: not a line of a memory log: 2:76: expected non_finite, an integer from 0 to 18446744073709551615, found -1",
	}, faults)
}
