package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrainers checks the files that torchtitan 0.3.0, nemo-automodel 0.7.0 and PyTorch 2.15 refuse, or run on
// the wrong ranks. torchtitan gives a rank two stages in a V for ZBVZeroBubble and DualPipeV
// (distributed/pipeline_parallel.py:559-576), Automodel does so only for ZBVZeroBubble
// (components/distributed/pipelining/functional.py:822), and both call _load_csv for compute-only files (:356
// and :912).
func TestTrainers(t *testing.T) {
	plan := func(args string) string {
		return succeeds(t, "", strings.Fields("plan --ranks 2 --microbatches 4 --to "+args)...)
	}
	chain, loop, v := plan("compute 1f1b"), plan("compute interleaved"), plan("compute dualpipev")
	const marked, dump = "\ufeff", "0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
	for _, test := range []struct{ file, flags, want string }{
		{chain, "torchtitan", "ok: with the schedule 1F1B or GPipe or PipelineScheduleSingle"},
		{loop, "torchtitan", "ok: with the schedule PipelineScheduleMulti or Interleaved1F1B or LoopedBFS or InterleavedZeroBubble"},
		{loop, "automodel", "ok: with the schedule PipelineScheduleMulti or Interleaved1F1B or LoopedBFS or InterleavedZeroBubble or DualPipeV"},
		{v, "torchtitan", "ok: with the schedule ZBVZeroBubble or DualPipeV"},
		{v, "automodel", "ok: with the schedule ZBVZeroBubble"},
		{v, "torchtitan --schedule dualpipev", "ok: with the schedule DualPipeV"},
		{v, "automodel --schedule DualPipeV", "1:1: found stages 0 3 on rank 0, where automodel puts others with the schedule DualPipeV: give it ZBVZeroBubble."},
		{v, "torchtitan --schedule PipelineScheduleMulti", "1:1: found stages 0 3 on rank 0, where torchtitan puts others with the schedule PipelineScheduleMulti: give it ZBVZeroBubble or DualPipeV."},
		{loop, "torchtitan --schedule ZBVZeroBubble", "1:1: found stages 0 2 on rank 0, where torchtitan puts others"},
		{loop, "torchtitan --schedule 1F1B", "1:1: found stages 0 2 on rank 0, where torchtitan puts others with the schedule 1F1B"},
		{chain, "torchtitan --schedule Interleaved1F1B", "1:1: found stages 0 on rank 0, where torchtitan puts others"},
		{"1F0,1B0\n0F0,0B0\n", "automodel", "1:1: found stages 1 on rank 0, where automodel puts others with the schedule of any name: give every rank equally many stages"},
		{"0F0,1F0,1B0,0B0\n2F0,2B0\n", "torchtitan", "with the schedule of any name"},
		{"0F0,3F0,4F0,7F0,7B0,4B0,3B0,0B0\n1F0,2F0,5F0,6F0,6B0,5B0,2B0,1B0\n", "torchtitan", "with the schedule of any name"},
		{plan("compute zb-v --stages 4"), "torchtitan --microbatches 2", "unknown microbatch: Rank 0, action 2: 0F2 belongs to an unknown microbatch"},
		{v, "torchtitan --stages 2", "3F0 belongs to an unknown stage; stages are 0 to 1"},

		{plan("comms zb-v"), "torchtitan", "1:1: found the form comms, expected compute, which is all that torchtitan loads: convert the file with --to compute."},
		{plan("plan zb-v"), "automodel", "1:1: found the form plan, expected compute"},
		{plan("comms zb-v"), "pytorch", "ok: "},
		{plan("plan zb-v"), "pytorch", "ok: "},
		{chain, "auto", "ok: "},
		{marked + chain, "auto", "ok: "},
		{marked + chain, "torchtitan", "1:1: found a byte order mark, expected an action"},
		{marked + plan("comms zb-v"), "pytorch", "1:1: found a byte order mark, expected an action"},
		{chain + "\n", "pytorch", "3:1: found a blank line, expected the end of the file"},
		{strings.ReplaceAll(chain, "\n", "\r\n") + "  ", "pytorch", "3:1: found a blank line"},
		{strings.TrimSuffix(chain, "\n"), "pytorch", "ok: "},
		{"0F0,0B0,0W0\n", "pytorch", "1:1: found the letters of 2024, expected today's"},
		{dump, "pytorch", "1:9: found a reduction, expected F, B, I or W"},
		{plan("compute dualpipe"), "pytorch", "1:1: found two copies of the model, expected one"},
		{plan("compute 1f1b --forward-only"), "pytorch", "1:1: found no backward, expected one for every forward"},
		{"0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", "pytorch", "2:5: found 1F0 after 1F1, expected ascending microbatches"},
	} {
		stdout, stderr, status := weir(test.file, append(strings.Fields("check - --runtime"), strings.Fields(test.flags)...)...)
		if want, ok := strings.CutPrefix(test.want, "ok: "); ok {
			require.Zero(t, status, test.flags+stderr)
			require.Contains(t, stdout+";", want+";"[:min(len(want), 1)], test.flags)
			continue
		}
		require.Equal(t, 1, status, test.flags)
		require.Contains(t, stderr, test.want)
	}

	stdout, stderr, status := weir(marked+v, "check", "-", "--runtime", "automodel", "--json")
	require.Equal(t, 1, status, stderr)
	var o outcome
	require.NoError(t, json.Unmarshal([]byte(stdout), &o))
	require.False(t, o.Valid)
	require.Equal(t, []int{1, 1}, []int{o.Faults[0].Line, o.Faults[0].Column})
	stdout, _, _ = weir(v, "check", "-", "--runtime", "torchtitan", "--json")
	require.NoError(t, json.Unmarshal([]byte(stdout), &o))
	require.Equal(t, []string{"ZBVZeroBubble", "DualPipeV"}, o.Schedules)

	for flags, want := range map[string]string{
		"- --schedule 1F1B": "--schedule 1F1B is the name that torchtitan or automodel is given",
		"- --runtime torchtitan --schedule _PipelineScheduleRuntime": "torchtitan knows 1F1B, GPipe, PipelineScheduleSingle",
		"zb-v --runtime automodel":                                   "--runtime automodel checks a file: weir plan zb-v --to compute",
	} {
		fails(t, misused, want, v, strings.Fields("check "+flags)...)
	}
}

// TestConvertMendsFiles checks that PyTorch's loader no longer refuses a file that was rewritten in a requested form.
func TestConvertMendsFiles(t *testing.T) {
	for file, want := range map[string]string{
		"\ufeff0F0,0B0\n\n": "0F0,0B0\n",
		"0F0,,0B0\n":        "0F0,,0B0\n",
		"0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n": "0F0,0B0\n",
	} {
		for to, want := range map[string]string{"same": file, "compute": want} {
			got := succeeds(t, file, "convert", "-", "--to", to)
			require.Equal(t, want, got)
		}
	}
}
