package format_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
)

// TestOldLetters: today's letters and the old ones give the same plan.
func TestOldLetters(t *testing.T) {
	for text, want := range map[string]string{
		"0F0,0B0":                      "0F0 0B0",
		"0F0,0I0,0W0":                  "0F0 0I0 0W0",
		"0F0,0F1,0B0,0I1,0W1":          "0F0 0F1 0B0 0I1 0W1", // a mix of B and of I and W
		"0F0,0F1,0BW0,0BW1":            "0F0 0F1 0B0 0B1",
		"0F0,0F1,0BW0,0I1,0W1":         "0F0 0F1 0B0 0I1 0W1",
		"0F0,0B0,0W0":                  "0F0 0I0 0W0",
		"0F0,0F1,0BW0,0B1,0W1":         "0F0 0F1 0B0 0I1 0W1",
		"0F0,(0F1;0B0)OVERLAP_F_B,0W0": "0F0 0F1& 0I0 0W0",
		"0F0,0SEND_B0,0B0,0RECV_B0":    "0F0 0SEND_B0 0B0 0RECV_B0",
		"0F0,0SEND_B0,0B0,0W0":         "0F0 0SEND_B0 0I0 0W0",
	} {
		require.Equal(t, want, words(read(t, text, format.Options{}).Plan, 0), text)
	}
}

// TestDerived: the file determines the placement and the numbers of stages and microbatches.
func TestDerived(t *testing.T) {
	file := read(t, "0F0,3F0,3B0,0B0,1F7\n1F0,2F0,2B0,1B0", format.Options{Name: "/tmp/v.csv"})
	require.Equal(t, schedule.Placement{Ranks: 2, Rank: []int{0, 1, 1, 0}}, file.Plan.Placement) // 1F7 is on the wrong rank
	require.Equal(t, 8, file.Plan.Microbatches)
	require.Equal(t, "v.csv", file.Plan.Name)
	require.Equal(t, schedule.Training, file.Plan.Mode)

	file = read(t, "0F0\n\n2F0,0F1\n\n\n", format.Options{})
	require.Equal(t, schedule.Placement{Ranks: 3, Rank: []int{0, 1, 2}}, file.Plan.Placement)
	require.Equal(t, schedule.ForwardOnly, file.Plan.Mode)
	require.Equal(t, "compute", file.Plan.Name)
	line, column := file.LineColumn(1, 0)
	require.Equal(t, [2]int{2, 1}, [2]int{line, column})

	options := format.Options{Ranks: 5, Stages: 2, Microbatches: 1, Slices: 3, Frozen: []bool{true, false}}
	file = read(t, "0F0\n\n2F0,0F1\n\n\n", options)
	require.Equal(t, schedule.Placement{Ranks: 5, Rank: []int{0, 1}}, file.Plan.Placement)
	require.Equal(t, 1, file.Plan.Microbatches)
	require.Equal(t, 3, file.Plan.Slices)
	require.Equal(t, options.Frozen, file.Plan.Frozen)
	require.Len(t, file.Plan.Programs, 5)

	const copies = "0F0,0F1,2F2,2B2,0B0,0B1\n1F0,1F1,3F2,3B2,1B0,1B1\n"
	require.Equal(t, 2, read(t, copies, format.Options{}).Plan.Placement.Copies)
	require.Zero(t, read(t, strings.Replace(copies, "3F2", "3F1", 1), format.Options{}).Plan.Placement.Copies)
	require.Zero(t, read(t, copies, format.Options{Stages: 5}).Plan.Placement.Copies)
	require.Zero(t, read(t, copies, format.Options{Microbatches: 6}).Plan.Placement.Copies)
}

// TestNoTransfers: a file with communication must have transfers if neighboring stages are on different ranks.
func TestNoTransfers(t *testing.T) {
	for text, want := range map[string]string{
		"0F0,0B0\n1F0,1B0\n":                 "found no SEND and no RECV, expected some, as stages 0 and 1 are on ranks 0 and 1: this is a compute-only plan: read it as compute, and lower.Transfers adds them",
		"0F0,1F0,1B0,0B0\n2F0,2B0\n":         "as stages 1 and 2 are on ranks 0 and 1: this is a compute-only plan",
		"0UNSHARD,0F0,0B0\n1UNSHARD,1F0,1B0": "as stages 0 and 1 are on ranks 0 and 1: this is a compute-only plan except for UNSHARD, RESHARD and REDUCE_GRAD: remove them and read it as compute",
	} {
		_, err := format.Read(strings.NewReader(text), format.Options{Name: "FILE", Format: format.Comms})
		place, ok := errors.AsType[*format.Error](err)
		require.True(t, ok, text)
		require.Equal(t, [2]int{1, 1}, [2]int{place.Line, place.Column})
		require.Contains(t, place.Text, want)
	}
	for _, text := range []string{
		"0F0,1F0,1B0,0B0\n",           // one rank
		"0F0,0B0,1RECV_F0\n1F0,1B0\n", // too few transfers: check.Plan reports those that are missing
	} {
		read(t, text, format.Options{Format: format.Comms})
	}
	read(t, "0F0\n1F1", format.Options{Format: format.Comms}) // two copies of one stage
}

// TestOutlier: Outlier returns the location of an action that alone determines the size of the plan.
func TestOutlier(t *testing.T) {
	for text, want := range map[string]string{
		"0F0,0F1,0F2,0B0,0B1,0B2":            "",
		"0F0,0F1,0F99,0B0,0B1,0B2":           "0F99 1:9",
		"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,,1B11": "1B11 2:14",
		"0F3,0B3":                            "0F3 1:1",
		"0F0,0F1,0F3,0F4":                    "", // 2 is missing
		"0F2,0F1,0F0":                        "",
		"1 1 -1 -1":                          "",
	} {
		file := read(t, text, format.Options{})
		got := ""
		if a, line, column, ok := file.Outlier(); ok {
			got = fmt.Sprintf("%v %d:%d", a, line, column)
		}
		require.Equal(t, want, got, text)
	}
	_, _, _, ok := read(t, "0F0,0F99", format.Options{Microbatches: 100}).Outlier()
	require.False(t, ok, "the number was asked for")
	_, _, _, ok = read(t, written(t, read(t, "0F0,0F99", format.Options{}).Plan, format.JSON), format.Options{}).Outlier()
	require.False(t, ok, "the file says the number")
}

// TestLeftOut: actions that a form cannot express are left out.
func TestLeftOut(t *testing.T) {
	const text = `weir plan 1 name "sent" mode training ranks 2 stages 2 microbatches 1 placement 0 1 frozen none
rank 0: x 1 +0: 0UNSHARD 0QUANTIZE 0F0~pf 0SEND_F0 0WAIT_F0~t 0RECV_B0 0ZERO_GRAD 0B0~gsb 0RESHARD 0REDUCE_GRAD 0WAIT_REDUCE
rank 1: x 1 +0: 1RECV_F0 1F0 1B0 1SEND_B0 1WAIT_B0`
	p := read(t, text, format.Options{}).Plan
	require.Equal(t, "0F0,0B0\n1F0,1B0\n", written(t, p, format.Compute))
	require.Equal(t, "1 -1\n1 -1\n", written(t, p, format.Order))
	require.Equal(t, "0UNSHARD,0QUANTIZE,0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0,0RESHARD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n", written(t, p, format.Comms))
	require.Equal(t, "0UNSHARD,0QUANTIZE,0F0,0SEND_F0,0RECV_B0,0B0,0RESHARD,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n", written(t, p, format.Comms26))
}

// TestWaitsOfPyTorch: from 2.15 on PyTorch refuses a send or a reduction without a wait. Write adds the waits that a
// plan lacks: at the end, where older versions waited, and for a reduction before the next reduction, because a rank
// may have only one at a time.
func TestWaitsOfPyTorch(t *testing.T) {
	const older = "0F0,0SEND_F0,0RECV_B0,2RECV_F0,2F0,2B0,2SEND_B0,2REDUCE_GRAD,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0,1REDUCE_GRAD\n"
	const now = "0F0,0SEND_F0,0RECV_B0,2RECV_F0,2F0,2B0,2SEND_B0,2REDUCE_GRAD,0B0,2WAIT_REDUCE_GRAD,0REDUCE_GRAD,0WAIT_SEND_F0,2WAIT_SEND_B0,0WAIT_REDUCE_GRAD\n" +
		"1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_SEND_F0,1WAIT_SEND_B0,1WAIT_REDUCE_GRAD\n"
	for _, form := range []format.Format{format.Auto, format.Comms, format.Comms26} {
		file := read(t, older, format.Options{Format: form})
		require.Equal(t, format.Comms26, file.Format)
		require.Equal(t, now, written(t, file.Plan, format.Comms))
	}
	file := read(t, now, format.Options{})
	require.Equal(t, format.Comms, file.Format)
	require.Equal(t, now, written(t, file.Plan, format.Comms), "its own waits stay")
	require.Equal(t, older, written(t, file.Plan, format.Comms26))
	require.Equal(t, "put 0WAIT_SEND_F0 before 0WAIT_REDUCE_GRAD.", file.Spell("put 0WAIT_F0 before 0WAIT_REDUCE."))
	partly := strings.Replace(now, ",0WAIT_SEND_F0", "", 1)
	require.Equal(t, partly, written(t, read(t, partly, format.Options{}).Plan, format.Comms), "a fault is not repaired")
	_, err := format.Read(strings.NewReader(now), format.Options{Format: format.Comms26})
	require.ErrorContains(t, err, `found "2WAIT_REDUCE_GRAD", expected F, B, I, W, a SEND, a RECV, UNSHARD, RESHARD, REDUCE_GRAD or QUANTIZE: comms-2.6 has no waits`)
}

// TestArtifacts builds the files of PyTorch's own tests from rules, byte for byte:
// zb1p_2rank_2stagep_compute.csv, zb1p_2rank_2stagep_comms.csv and dualpipev_4rank_10mb.csv
// of test/distributed/pipelining/artifacts/ in github.com/pytorch/pytorch at commits
// 15380b18b0ec, 68401d25cfb7 and a2af973f46e7. It compares digests.
func TestArtifacts(t *testing.T) {
	p, err := schedule.ZB1P(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 8})
	require.NoError(t, err)
	lines := strings.Split(written(t, p, format.Compute), "\n")
	rank0 := strings.SplitAfterN(lines[0], ",", 4)
	// Rank 0 is idle for a tick after its warmup, and rank 1 at the beginning; the letters
	// are those of 2024.
	compute := strings.ReplaceAll(strings.Join(rank0[:3], "")+","+rank0[3]+"\n,"+lines[1]+"\n", "I", "B")
	requireArtifact(t, "0dd1690c4034ac9d644a32eb48c8540873c6e4a6f8db14919c9b67e9818958db", compute)
	file := read(t, compute, format.Options{})
	require.Equal(t, format.Compute, file.Format)
	require.Equal(t, p.Placement, file.Plan.Placement)
	for rank := range p.Programs {
		require.Equal(t, actions(p, rank), actions(file.Plan, rank))
	}

	// This is the same schedule with communication, merged as PyTorch does.
	lowered := ofLists(t, p.Placement, 8,
		"0F0 0SEND_F0 2RECV_F0 0F1 0SEND_F1 2RECV_F1 2F0 2SEND_F0 2F1 2SEND_F1 2RECV_B0 2B0 2SEND_B0 0F2 0SEND_F2 2RECV_B1 2B1 "+
			"2SEND_B1 0F3 0SEND_F3 2RECV_F2 0RECV_B0 0B0 2F2 2SEND_F2 2RECV_F3 0RECV_B1 0B1 2F3 2SEND_F3 2RECV_B2 2B2 2SEND_B2 0F4 "+
			"0SEND_F4 2RECV_B3 2B3 2SEND_B3 0F5 0SEND_F5 2RECV_F4 0RECV_B2 0B2 2F4 2SEND_F4 2RECV_F5 0RECV_B3 0B3 2F5 2SEND_F5 "+
			"2RECV_B4 2B4 2SEND_B4 0F6 0SEND_F6 2RECV_B5 2B5 2SEND_B5 0F7 0SEND_F7 2RECV_F6 0RECV_B4 0B4 2F6 2SEND_F6 2RECV_F7 "+
			"0RECV_B5 0B5 2F7 2SEND_F7 2RECV_B6 2B6 2SEND_B6 2RECV_B7 2B7 2SEND_B7 0RECV_B6 0B6 0RECV_B7 0B7",
		"1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 3RECV_F1 3I0 3SEND_B0 1RECV_B0 3F1 1RECV_F2 3I1 3SEND_B1 "+
			"1RECV_B1 3W0 1RECV_F3 1F2 1SEND_F2 1I0 1SEND_B0 3W1 3RECV_F2 1F3 1SEND_F3 1I1 1SEND_B1 1W0 3RECV_F3 3F2 3I2 3SEND_B2 "+
			"1RECV_B2 1W1 1RECV_F4 3F3 3I3 3SEND_B3 1RECV_B3 3W2 1RECV_F5 1F4 1SEND_F4 1I2 1SEND_B2 3W3 3RECV_F4 1F5 1SEND_F5 1I3 "+
			"1SEND_B3 1W2 3RECV_F5 3F4 3I4 3SEND_B4 1RECV_B4 1W3 1RECV_F6 3F5 3I5 3SEND_B5 1RECV_B5 3W4 1RECV_F7 1F6 1SEND_F6 1I4 "+
			"1SEND_B4 3W5 3RECV_F6 1F7 1SEND_F7 1I5 1SEND_B5 1W4 3RECV_F7 3F6 3I6 3SEND_B6 1RECV_B6 1W5 3F7 3I7 3SEND_B7 1RECV_B7 3W6 "+
			"1I6 1SEND_B6 3W7 1I7 1SEND_B7 1W6 1W7")
	comms := regexp.MustCompile(`(\d)B`).ReplaceAllString(written(t, lowered, format.Comms26), "${1}BW")
	comms = regexp.MustCompile(`(\d)I`).ReplaceAllString(comms, "${1}B")
	requireArtifact(t, "7ea26cdd136986442e160539817de920d00d2980fa395fb762ac154fbade807e", comms)
	file = read(t, comms, format.Options{})
	require.Equal(t, format.Comms26, file.Format)
	require.NoError(t, check.Plan(file.Plan))
	for rank := range p.Programs {
		require.Equal(t, actions(lowered, rank), actions(file.Plan, rank))
	}

	p, err = schedule.DualPipeV(schedule.Params{Placement: schedule.Wave(4, 8), Microbatches: 10})
	require.NoError(t, err)
	pairs := written(t, p, format.Compute)
	requireArtifact(t, "16ce4a29936e4c5ad774098add32489b4937942e3f5ab0108f17d2826b184529", pairs)
	file = read(t, pairs, format.Options{})
	require.Equal(t, p.Placement, file.Plan.Placement)
	for rank := range p.Programs {
		require.Equal(t, actions(p, rank), actions(file.Plan, rank))
	}
}

// ofLists returns the plan of these lists of actions, one for each rank.
func ofLists(t *testing.T, placement schedule.Placement, microbatches int, programs ...string) *schedule.Plan {
	p := &schedule.Plan{Name: "lists", Placement: placement, Microbatches: microbatches}
	for _, list := range programs {
		var body []schedule.Action
		for word := range strings.FieldsSeq(list) {
			a, err := schedule.ParseAction(word)
			require.NoError(t, err)
			body = append(body, a)
		}
		p.Programs = append(p.Programs, []schedule.Segment{{Body: body, Repeat: 1}})
	}
	return p
}

// requireArtifact requires that a text has this digest and survives reading and writing.
func requireArtifact(t *testing.T, digest, text string) {
	t.Helper()
	require.Equal(t, digest, fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
	for _, ends := range []string{"\n", "\r\n"} {
		text := strings.ReplaceAll(text, "\n", ends)
		var back strings.Builder
		_, err := read(t, text, format.Options{}).WriteTo(&back)
		require.NoError(t, err)
		require.Equal(t, text, back.String())
	}
}

// TestLetters: a file read in the letters of 2024 says so, and options can set the letters.
func TestLetters(t *testing.T) {
	const doubled = "0F0,0F1,0B0,0W0,0B1,0W1"
	for _, test := range []struct {
		text    string
		letters format.Letters
		want    string
		old     bool
	}{
		{doubled, format.AutoLetters, "0F0 0F1 0I0 0W0 0I1 0W1", true},
		{doubled, format.OldLetters, "0F0 0F1 0I0 0W0 0I1 0W1", true},
		{doubled, format.TodaysLetters, "0F0 0F1 0B0 0W0 0B1 0W1", false},
		{"0F0,0B0", format.AutoLetters, "0F0 0B0", false},
		{"0F0,0B0", format.OldLetters, "0F0 0I0", true},
		{"0F0,0BW0", format.AutoLetters, "0F0 0B0", true},
		{"0F0,0I0,0W0", format.AutoLetters, "0F0 0I0 0W0", false},
		{"0F0,0I0,0W0", format.OldLetters, "0F0 0I0 0W0", false},
		{"0F0,0W0", format.AutoLetters, "0F0 0W0", false}, // no letter here has changed
		{"1 -1", format.OldLetters, "0F0 0B0", false},
	} {
		file := read(t, test.text, format.Options{Letters: test.letters})
		require.Equal(t, test.want, words(file.Plan, 0), "%s, %v", test.text, test.letters)
		require.Equal(t, test.old, file.OldLetters, "%s, %v", test.text, test.letters)
	}
	_, err := format.Read(strings.NewReader("0F0,0BW0"), format.Options{Letters: format.TodaysLetters})
	require.ErrorContains(t, err, `line 1:5: found "0BW0", expected today's letters, as in the options: they have B and no BW`)
	_, err = format.Read(strings.NewReader("0F0"), format.Options{Letters: 3})
	require.ErrorIs(t, err, format.ErrFormat)
}

func TestLettersNames(t *testing.T) {
	for letters := format.AutoLetters; letters <= format.OldLetters; letters++ {
		back, ok := format.ParseLetters(letters.String())
		require.True(t, ok)
		require.Equal(t, letters, back)
	}
	_, ok := format.ParseLetters("new")
	require.False(t, ok)
	require.Equal(t, "auto today old letters(?)", fmt.Sprint(format.AutoLetters, format.TodaysLetters, format.OldLetters, format.Letters(3)))
}

// TestSpreadsheets: spreadsheets begin a file with a byte order mark and put cells in double
// quotes.
func TestSpreadsheets(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeff0F0,0F1,0B0,0B1\r\n":                        "0F0 0F1 0B0 0B1",
		"\"0F0\",\"\",\"0B0\"\r\n":                         "0F0 0B0",
		"\ufeff\"0F0\", \"(0F1;0B0)OVERLAP_F_B\" ,\"0B1\"": "0F0 0F1& 0B0 0B1",
		"\"0UNSHARD\",0F0,\"0B0\"":                         "0UNSHARD 0F0 0B0",
		"\ufeff1 1 -1 -1":                                  "0F0 0F1 0B0 0B1",
		"\ufeffweir plan 1 name \"\" mode training ranks 1 stages 1 microbatches 1 placement 0 frozen none rank 0: x 1 +0: 0F0": "0F0",
	} {
		file := read(t, text, format.Options{})
		require.Equal(t, want, words(file.Plan, 0), text)
		var back strings.Builder
		n, err := file.WriteTo(&back)
		require.NoError(t, err)
		require.EqualValues(t, len(text), n)
		require.Equal(t, text, back.String())
	}
	// The mark takes no column, because editors do not show it. A quote takes one.
	file := read(t, "\ufeff\"0F0\",\"(0F1;0B0)OVERLAP_F_B\"\n", format.Options{})
	for position, want := range []int{2, 9, 13} {
		line, column := file.LineColumn(0, int64(position))
		require.Equal(t, [2]int{1, want}, [2]int{line, column})
	}
	for text, want := range map[string]string{
		"\ufeff0F0,0X0":       `1:5: found "0X0", expected an action`,
		"\ufeff":              `1:1: found the end of the file, expected a plan`,
		"\ufeff\ufeff0F0":     `1:1: found "\ufeff0F0", expected a plan`,
		"\"0F0\",\"0X0\"":     `1:8: found "0X0", expected an action`,
		"\"0F0,0B0\"":         `1:1: found "\"0F0", expected an action such as 2F0, alone in its quotes`,
		"\"0F0\",\"":          `1:7: found "\"", expected an action such as 2F0, alone in its quotes`,
		"0F0\"":               `1:1: found "0F0\"", expected an action`,
		"\"0F0\",0B0,\"\"0\"": `1:12: found "\"0", expected an action`,
	} {
		_, err := format.Read(strings.NewReader(text), format.Options{})
		require.ErrorContains(t, err, "line "+want, text)
	}
	_, err := format.Read(strings.NewReader("0F0,\"\",0B0"), format.Options{Format: format.Comms})
	require.ErrorContains(t, err, "1:6: found an empty cell")
}

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
