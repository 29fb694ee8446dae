package format_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// The list that Megatron gives as the example of convert_schedule_table_to_order in
// megatron/core/transformer/cuda_graphs.py: two ranks of two stages, groups of three,
// five microbatches; it is that of rank 0.
func TestOrderOfMegatron(t *testing.T) {
	p, err := schedule.Interleaved(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 5, Group: 3})
	require.NoError(t, err)
	list := written(t, p, format.Order)
	rank0, _, _ := strings.Cut(list, "\n")
	require.Equal(t, "1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1", rank0)

	file := read(t, list, format.Options{})
	require.Equal(t, p.Placement, file.Plan.Placement)
	require.NoError(t, schedule.Check(file.Plan))
	for rank := range p.Programs {
		require.Equal(t, actions(p, rank), actions(file.Plan, rank))
	}
}

// Weight gradients apart, the way Python prints lists, and forwards alone.
func TestOrder(t *testing.T) {
	for text, want := range map[string]string{
		"1 2 -2 -1 1 2 -2 -1":    "0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1",
		"[1, 2, -2, -2.5, -1]\n": "0F0 1F0 1I0 1W0 0B0",
		"1,1,-1,-1,-1.5,-1.5":    "0F0 0F1 0I0 0I1 0W0 0W1",
		" [1 2\t1 2]\r\n\r\n":    "0F0 1F0 0F1 1F1",
		"-1.5 -1 1 2":            "0W0 0I0 0F0 1F0",
		"1 3\n\n":                "0F0 2F0",
	} {
		file := read(t, text, format.Options{Format: format.Order})
		require.Equal(t, want, words(file.Plan, 0), text)
	}
	file := read(t, "1 2\n1\n1", format.Options{})
	require.Equal(t, schedule.Looped(3, 4), file.Plan.Placement)
	require.Equal(t, "0F0 3F0", words(file.Plan, 0))
	require.Equal(t, schedule.ForwardOnly, file.Plan.Mode)
}
