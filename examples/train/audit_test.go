package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAudits: audits find nothing, and change neither weights nor FP8's statistics.
func TestAudits(t *testing.T) {
	skipShort(t)
	for _, args := range [][]string{
		{"-fp8", "delayed", "-width", "32"},
		{"-ranks", "2", "-plan", "zb-v", "-replicas", "2", "-shard", "2", "-sums", "-microbatches", "7"},
		{"-ranks", "2", "-plan", "interleaved", "-recompute", "-tied", "-offload", "0.5", "-dropout", "0.1"},
	} {
		args = append([]string{"-steps", "4", "-microbatches", "6"}, args...)
		want, got := summaryOf(t, args...), summaryOf(t, append(args, "-audit", "2")...)
		require.Equal(t, []int{0, 2}, []int{want.AuditedSteps, got.AuditedSteps})
		require.Equal(t, want.WeightsSHA256, got.WeightsSHA256, args)
		require.Equal(t, want.FP8Roles, got.FP8Roles)
	}
}
