package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// memPlan runs weir mem plan in a folder with a file of costs.
func memPlan(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	costs := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(costs, []byte(`{"schema":1,"unit":"ms","scale":1,"stages":[{"f":10,"i":10,"w":10,"output":1024,"gradient":1024,"saved":18432,"freed_by_i":6144,"carry":9216}]}`), 0o644))
	var stdout, stderr bytes.Buffer
	status = run(append([]string{"mem", "plan", "--costs", costs}, args...), strings.NewReader(""), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// TestMemPlan prints certificates.
func TestMemPlan(t *testing.T) {
	status, out, errs := memPlan(t, "1f1b", "--microbatches", "1000")
	require.Equal(t, good, status, errs)
	require.Contains(t, out, "1f1b: 4 ranks, 4 stages, 1000 microbatches; sizes: exact")
	require.Contains(t, out, "0.0000%  optimal")
	require.Contains(t, out, "rank 0 at its peak: activation 3.0 KiB, saved 72.0 KiB")
	require.Contains(t, out, "stage 0 (stage0): saved for W, saved, 4 of microbatches 0 to 3")
}

// TestMemPlanWhatIf prints bytes against time.
func TestMemPlanWhatIf(t *testing.T) {
	status, out, errs := memPlan(t, "1f1b", "--microbatches", "16", "--what-if", "--json")
	require.Equal(t, good, status, errs)
	var o certificates
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Len(t, o.PerRank, 4)
	require.GreaterOrEqual(t, len(o.WhatIf), 4)
	for i := 1; i < len(o.WhatIf); i++ {
		require.Less(t, o.WhatIf[i].Bytes, o.WhatIf[0].Bytes)
		require.GreaterOrEqual(t, o.WhatIf[i].Makespan, o.WhatIf[0].Makespan)
	}
}

// TestMemPlanBudget refuses what does not fit.
func TestMemPlanBudget(t *testing.T) {
	status, out, errs := memPlan(t, "1f1b", "--budget", "50KiB")
	require.Equal(t, atFault, status)
	require.Empty(t, out)
	require.Contains(t, errs, "rank 0 needs 76800 bytes for a step, 25600 more than the 51200 that it has")
	require.Contains(t, errs, "what would fit: depth-first with at most 2 in flight on a rank (cap 2) (40960 bytes)")
	status, _, errs = memPlan(t, "1f1b", "--budget", "80KiB")
	require.Equal(t, good, status, errs)
}

// TestMemPlanCSV writes an instance that can be placed.
func TestMemPlanCSV(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rank1.csv")
	status, _, errs := memPlan(t, "zb-h1", "--csv", file, "--rank", "1")
	require.Equal(t, good, status, errs)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "id,lower,upper,size"), string(text[:40]))
	status, _, errs = memPlan(t, "zb-h1", "--csv", file, "--rank", "4")
	require.Equal(t, misused, status)
	require.Contains(t, errs, "ranks are 0 to 3")
}

// TestMemPlanMisused says what is missing.
func TestMemPlanMisused(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, misused, run([]string{"mem", "plan", "1f1b"}, strings.NewReader(""), &stdout, &stderr))
	require.Contains(t, stderr.String(), "give --templates, or --costs")

	broken := filepath.Join(t.TempDir(), "templates.json")
	require.NoError(t, os.WriteFile(broken, []byte("{\"schema\": 7}"), 0o644))
	stderr.Reset()
	require.Equal(t, atFault, run([]string{"mem", "plan", "1f1b", "--templates", broken}, strings.NewReader(""), &stdout, &stderr))
	require.Contains(t, stderr.String(), "templates.json:1:12: found 7")
}
