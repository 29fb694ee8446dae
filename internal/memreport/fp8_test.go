package memreport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
)

// The records of FP8 tensors are added up over steps, by role, in text, page and JSON.
func TestFP8(t *testing.T) {
	log := &memreport.Log{}
	for step := range int64(3) {
		for _, f := range []memlog.FP8{
			{Step: step, Role: "weight", Tensors: 4, LeastScale: 1024, GreatestScale: 4096},
			{Step: step, Role: "grad_output\x1b", Tensors: 4, Frozen: int(step) / 2, NonFinite: uint64(step) / 2, Saturated: 1000, Underflowed: uint64(step), LeastScale: float64(2 - step), GreatestScale: 8},
		} {
			require.NoError(t, log.Add(&memlog.Record{Schema: 1, FP8: &f}))
		}
		require.NoError(t, log.Add(planned(0, 400, 400, 500, 500)))
	}
	s := log.Summary()
	require.EqualValues(t, 3, s.Records, "these lines are of no microbatch")
	require.Equal(t, []memreport.FP8{
		{Role: "grad_output\x1b", Steps: 3, Tensors: 4, FrozenIn: 1, NonFinite: 1, Saturated: 3000, Underflowed: 3, LeastScale: 1, GreatestScale: 8},
		{Role: "weight", Steps: 3, Tensors: 4, LeastScale: 1024, GreatestScale: 4096},
	}, s.FP8)

	out := textOf(t, log)
	require.Contains(t, out, `
Elements in FP8, by role:
  role             tensors  saturated  became zero  not finite  in steps  scales
  grad_output\x1b  4        3,000      3            1           1 of 3    1 to 8
  weight           4        0          0            0           0 of 3    1024 to 4096
`)
	page := pageOf(t, log)
	require.Contains(t, page, "Elements in FP8, by role")
	require.Contains(t, page, "1024 to 4096")
}

// A log may have any number of roles. The summary keeps a limited number, and adds up the others.
func TestRolesAreBounded(t *testing.T) {
	log := &memreport.Log{}
	for i := range 1000 {
		require.NoError(t, log.Add(&memlog.Record{Schema: 1, FP8: &memlog.FP8{Role: fmt.Sprint(i, strings.Repeat("x", 1000)), Saturated: 1}}))
	}
	roles := log.Summary().FP8
	require.Len(t, roles, 16)
	require.Equal(t, memreport.FP8{Role: "(other names)", Steps: 985, Saturated: 985}, roles[0])
}
