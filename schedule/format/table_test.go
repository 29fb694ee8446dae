package format_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
)

// The output of PyTorch 2.9.1: the table that it prints (_format_pipeline_order) and the file that it dumps (_dump_csv)
// for ScheduleDualPipeV with 4 microbatches on two ranks, and the file that its runtime dumps for
// ScheduleInterleaved1F1B with transfers.
const (
	printed = `         Rank 0               Rank 1              
Step 00: 0F0                  1F0                 
Step 01: 0F1                  2F0                 
Step 02: 0F2                  1F1                 
Step 03: 3F0                  2F1                 
Step 04: 3I0                  1F2                 
Step 05: 3W0                  2B0                 
Step 06: 3F1                  (2F2;1B0)OVERLAP_F_B
Step 07: (0F3;3B1)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B
Step 08: (3F2;0B0)OVERLAP_F_B (2F3;1B1)OVERLAP_F_B
Step 09: 3B2                  2B2                 
Step 10: (3F3;0B1)OVERLAP_F_B 1B2                 
Step 11: 3B3                  2I3                 
Step 12: 0I2                  1I3                 
Step 13: 0W2                  2W3                 
Step 14: 0I3                  1W3                 
Step 15: 0W3                                      
`
	dumped = `0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3
1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3
`
	comms = `0UNSHARD,2UNSHARD,0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,0F2,0SEND_F2,2B0,2SEND_B0,2RECV_B1,0F3,0SEND_F3,2RECV_F2,2B1,2SEND_B1,0RECV_B0,2F2,2SEND_F2,2RECV_F3,0B0,0RECV_B1,2F3,2SEND_F3,0B1,2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,2RESHARD,0RECV_B2,0B2,0RECV_B3,0B3
1UNSHARD,3UNSHARD,1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,1RECV_F2,3F1,1RECV_B0,3B1,3SEND_B1,1RECV_F3,1F2,1SEND_F2,1RECV_B1,1B0,1SEND_B0,3RECV_F2,1F3,1SEND_F3,1B1,1SEND_B1,3RECV_F3,3F2,3B2,3SEND_B2,1RECV_B2,3F3,3B3,3SEND_B3,1RECV_B3,3RESHARD,1B2,1SEND_B2,1B3,1SEND_B3
`
)

func TestPrintedTable(t *testing.T) {
	table, dump := read(t, printed, format.Options{}), read(t, dumped, format.Options{})
	require.Equal(t, format.Compute, table.Format)
	require.NoError(t, check.Plan(table.Plan))
	require.Equal(t, dump.Plan.Programs, table.Plan.Programs)
	line, column := table.LineColumn(1, 6) // the first action of the second rank's pair
	require.Equal(t, []int{8, 32}, []int{line, column})
	require.Len(t, table.Refused(), 1)
	var same bytes.Buffer
	_, err := table.WriteTo(&same)
	require.NoError(t, err)
	require.Equal(t, printed, same.String())

	marked := strings.Replace(printed, "1F3;2B1)OVERLAP_F_B", "1F3;2B1)OVERLAP_F_B <-- ERROR HERE", 1)
	require.Equal(t, table.Plan.Programs, read(t, marked, format.Options{}).Plan.Programs)
	for text, want := range map[string]string{
		strings.Replace(printed, "3I0", "3X0", 1):             "line 6:10: found \"3X0\"",
		strings.Replace(printed, "\nStep 05", "\nstep 05", 1): "line 7:1: found \"step\", expected a row of the table",
	} {
		_, err := format.Read(strings.NewReader(text), format.Options{})
		require.ErrorContains(t, err, want)
	}
	_, err = format.Read(strings.NewReader(printed), format.Options{Ranks: 3})
	require.ErrorContains(t, err, "found a table of 2 ranks, expected 3")
}

func TestFilesWithoutTheLastReshard(t *testing.T) {
	file := read(t, comms, format.Options{})
	require.True(t, file.Released)
	require.NoError(t, check.Plan(file.Plan))
	program := slices.Collect(file.Plan.All(0))
	require.Equal(t, []schedule.Action{schedule.NewAction(schedule.B, 0, 3), schedule.NewAction(schedule.Reshard, 0, 0)}, program[len(program)-2:])

	// Weights that no backward releases are still a fault, and so are those of a file with reductions.
	for _, text := range []string{
		strings.Replace(comms, "2RESHARD,", "2RESHARD,2UNSHARD,", 1),
		strings.Replace(comms, "2RESHARD,", "2REDUCE_GRAD,2RESHARD,", 1),
	} {
		file := read(t, text, format.Options{})
		require.ErrorContains(t, check.Plan(file.Plan), "Rank 0 never releases the weights of stage ")
	}
}
