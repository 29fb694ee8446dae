package format_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
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

// TestNoTransfers: a file with communication must have transfers if neighbouring stages are on different ranks.
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

	// With communication, merged as PyTorch does.
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
