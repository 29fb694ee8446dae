package format_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
)

// TestOrderOfMegatron reads the list that Megatron gives as the example of
// convert_schedule_table_to_order in megatron/core/transformer/cuda_graphs.py: two ranks of
// two stages, groups of three, five microbatches, on rank 0.
func TestOrderOfMegatron(t *testing.T) {
	p, err := schedule.Interleaved(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 5, Group: 3})
	require.NoError(t, err)
	list := written(t, p, format.Order)
	rank0, _, _ := strings.Cut(list, "\n")
	require.Equal(t, "1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1", rank0)

	file := read(t, list, format.Options{})
	require.Equal(t, p.Placement, file.Plan.Placement)
	require.NoError(t, check.Plan(file.Plan))
	for rank := range p.Programs {
		require.Equal(t, actions(p, rank), actions(file.Plan, rank))
	}
}

// TestOrder reads separate weight gradients, lists as Python prints them, and lists of
// forwards only.
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

// TestOrderBrackets: brackets match. A rank's list may span several lines, and the lists of
// several ranks may be nested in one list or follow one another.
func TestOrderBrackets(t *testing.T) {
	const one, both = "0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"
	for _, text := range []string{
		"1 2 -2 -1\n1 2 -2 -1\n",
		"[1, 2, -2, -1]\n[1, 2, -2, -1]\n",
		"[[1,2,-2,-1],[1,2,-2,-1]]",
		"[[1,2,-2,-1]]\n[1,2,-2,-1]\n",
		"[1,2,-2,-1],[1,2,-2,-1]\r\n",
		"[[1, 2, -2, -1],\n [1, 2, -2, -1]]\n",
		"[[1,\r\n  2,\r\n  -2,\r\n  -1],\r\n [1,\r\n  2,\r\n  -2,\r\n  -1]]\r\n",
		"[\n  [\n    1,\n    2,\n    -2,\n    -1\n  ],\n  [\n    1,\n    2,\n    -2,\n    -1\n  ]\n]\n",
		"[1, 2,\n -2, -1]\n\n[1, 2,\n -2, -1]\n",
	} {
		for _, ranks := range []int{0, 2} {
			file := read(t, text, format.Options{Ranks: ranks})
			require.Equal(t, format.Order, file.Format, text)
			require.Len(t, file.Plan.Programs, 2, text)
			require.Equal(t, one, words(file.Plan, 0), text)
			require.Equal(t, both, words(file.Plan, 1), text)
			var back strings.Builder
			_, err := file.WriteTo(&back)
			require.NoError(t, err)
			require.Equal(t, text, back.String())
			lines := strings.Split(text, "\n")
			for rank := range 2 {
				for position, number := range []string{"1", "2", "-2", "-1"} {
					line, column := file.LineColumn(rank, int64(position))
					require.True(t, strings.HasPrefix(lines[line-1][column-1:], number), "%s: %d:%d", text, line, column)
				}
			}
		}
	}
	file := read(t, "[[1, -1], [], [1, -1]]", format.Options{})
	require.Equal(t, schedule.Looped(3, 3), file.Plan.Placement)
	require.Empty(t, file.Plan.Programs[1])
	line, column := file.LineColumn(1, 0)
	require.Equal(t, [2]int{1, 11}, [2]int{line, column})

	for text, want := range map[string]string{
		"[1,2":              `1:1: found "[", expected a closing ] after it`,
		"[[1],\n [2":        `2:2: found "[", expected a closing ] after it`,
		"1,-1]]]":           `1:5: found "]", expected an opening [ before it`,
		"[1,-1]]]":          `1:7: found "]", expected an opening [ before it`,
		"[1] 2":             `1:5: found "2", expected a [ before it: the other numbers are in brackets`,
		"1 -1\n[1 -1]":      `1:1: found "1", expected a [ before it: the other numbers are in brackets`,
		"[1, [1]]":          `1:2: found "1", expected a [ before it: the other numbers are in brackets`,
		"[[1], 2]":          `1:7: found "2", expected a [ before it: the other numbers are in brackets`,
		"[[[1]]]":           `1:3: found "[", expected a number: lists of ranks are at most inside one other list`,
		"[[1, 2], [1, +2]]": `1:14: found "+2", expected 1 to 8192`,
		"[1, 0]\n[1]":       `1:5: found "0", expected 1 to 8192`,
	} {
		_, err := format.Read(strings.NewReader(text), format.Options{Format: format.Order})
		require.ErrorContains(t, err, "line "+want, text)
	}
	_, err := format.Read(strings.NewReader("[[1],[1]]"), format.Options{Ranks: 1})
	require.ErrorContains(t, err, "line 1:6: found a list for rank 1, expected 1 ranks, as in the options")
	_, err = format.Read(strings.NewReader("[[1],[1]]\n\n"), format.Options{Ranks: 3})
	require.ErrorContains(t, err, "line 3:1: found the end of the file, expected a list for rank 2")
	_, err = format.Read(strings.NewReader(strings.Repeat("[]", schedule.MaxStages)+"\n[]"), format.Options{})
	require.ErrorContains(t, err, "line 2:1: found the list of rank 16384, expected at most 16384 ranks")
}
