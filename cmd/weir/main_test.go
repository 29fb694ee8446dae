package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// weir runs a command line and returns its output and its exit status.
func weir(stdin string, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), status
}

// succeeds runs a command line that must succeed, and returns its output.
func succeeds(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	stdout, stderr, status := weir(stdin, args...)
	require.Empty(t, stderr)
	require.Zero(t, status, args)
	return stdout
}

// fails runs a command line that must fail with a status, and requires a part of its message.
func fails(t *testing.T, status int, message, stdin string, args ...string) {
	t.Helper()
	_, stderr, have := weir(stdin, args...)
	require.Equal(t, status, have, "%s: %s", args, stderr)
	require.Contains(t, stderr, message)
}

// decoded runs a command line that ends with a status, and returns the JSON that it prints.
func decoded[T any](t *testing.T, status int, stdin string, args ...string) (value T) {
	t.Helper()
	stdout, stderr, have := weir(stdin, args...)
	require.Equal(t, status, have, "%s: %s", args, stderr)
	require.NoError(t, json.Unmarshal([]byte(stdout), &value))
	return value
}

func TestPlan(t *testing.T) {
	for name, args := range map[string]string{
		"depth-first.txt":    "depth-first --ranks 1 --stages 2 --microbatches 64",
		"groups.txt":         "depth-first --ranks 1 --stages 2 --microbatches 10 --group 4",
		"breadth-first.txt":  "breadth-first --ranks=1 --stages=3 --microbatches=1000000",
		"forward-only.txt":   "depth-first --ranks 1 --stages 2 --microbatches 64 --forward-only",
		"frozen.txt":         "depth-first --ranks 1 --stages 4 --microbatches 64 --frozen 0,1,3",
		"frozen-forward.txt": "depth-first --ranks 1 --stages 2 --microbatches 3 --frozen 0,1 --forward-only",
		"one-stage.txt":      "depth-first --ranks 1 --stages 1 --microbatches 1",
		"1f1b.csv":           "1f1b --ranks 3 --stages 3 --microbatches 4 --to compute",
		"zb-v.csv":           "zb-v --ranks 2 --stages 4 --microbatches 4 --to comms",
		"interleaved.order":  "interleaved --ranks 2 --stages 4 --microbatches 4 --to order",
		"zb1p.json":          "zb1p --ranks 2 --stages 4 --microbatches 40 --json",
		"sharded.csv":        "1f1b --ranks 2 --stages 2 --microbatches 2 --to comms --replicas 2 --shard 3 --gathered 1",
		"dualpipe.txt":       "dualpipe --ranks 2 --microbatches 4",
		"descending.csv":     "breadth-first --ranks 2 --stages 4 --microbatches 3 --to compute --descending",
	} {
		t.Run(name, func(t *testing.T) {
			stdout := succeeds(t, "", append([]string{"plan"}, strings.Fields(args)...)...)
			path := filepath.Join("testdata", name)
			testkit.Golden(t, path, stdout)

			// weir check accepts the output of weir plan from a file and from standard input,
			// and weir convert reproduces it.
			fromFile := succeeds(t, "", "check", path)
			fromInput := succeeds(t, stdout, "check", "-")
			require.Equal(t, strings.Replace(fromFile, strconv.Quote(name), strconv.Quote("<stdin>"), 1), fromInput)
			require.True(t, strings.HasPrefix(fromFile, "ok: "))
			same := succeeds(t, "", "convert", path)
			require.Equal(t, stdout, same)
		})
	}
}

// weir plan, check, sim and draw accept every schedule.
func TestEverySchedule(t *testing.T) {
	for _, s := range schedule.Schedules() {
		for _, form := range []string{"text", "compute", "comms", "json"} {
			plan := succeeds(t, "", "plan", s.Name, "--ranks", "4", "--microbatches", "9", "--to", form)
			succeeds(t, plan, "check", "-", "--capacity", "0")
		}
		for _, args := range []string{"sim", "sim --forward-only", "draw", "draw --to perfetto", "draw --to html"} {
			words := strings.Fields(args)
			succeeds(t, "", append([]string{words[0], s.Name}, words[1:]...)...)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"groups.txt":        `ok: "depth-first group=4", training: 1 rank, 2 stages, 10 microbatches, 40 actions in 2 segments; in flight per stage 4 4; entries per rank 4`,
		"breadth-first.txt": `ok: "breadth-first", training: 1 rank, 3 stages, 1,000,000 microbatches, 6,000,000 actions in 6 segments, all repeats proven from 18; in flight per stage 1000000 1000000 1000000; entries per rank 1000000`,
		"one-stage.txt":     `ok: "depth-first", training: 1 rank, 1 stage, 1 microbatch, 2 actions in 1 segment; in flight per stage 1; entries per rank 1`,
		"1f1b.csv":          `ok: "1f1b.csv", training: 3 ranks, 3 stages, 4 microbatches, 24 actions in 3 segments; no lifetimes`,
		"zb-v.csv":          `ok: "zb-v.csv", training: 2 ranks, 4 stages, 4 microbatches, 96 actions in 2 segments; safe under rendezvous; no lifetimes`,
	} {
		stdout := succeeds(t, "", "check", filepath.Join("testdata", name))
		require.Equal(t, want+"\n", stdout)
	}
	many := succeeds(t, "", "plan", "depth-first", "--ranks", "1", "--stages", "40", "--microbatches", "8")
	stdout := succeeds(t, many, "check", "-")
	require.Contains(t, stdout, "in flight per stage 1 to 1;")

	bare := "weir plan 1 name \"bare\" mode forward-only ranks 1 stages 1 microbatches 2 placement 0 frozen none rank 0: x 2 +1: 0F0"
	stdout = succeeds(t, bare, "check", "-")
	require.Contains(t, stdout, "2 actions in 1 segment; no lifetimes\n")
}

func TestCheckFaults(t *testing.T) {
	good, _, _ := weir("", "plan", "depth-first", "--ranks", "1", "--stages", "2", "--microbatches", "8")
	broken := strings.NewReplacer("1F0~io 1B0", "1B0~ps 1F0~io 0F0", "entries=1", "entries=0").Replace(good)
	require.NotEqual(t, good, broken)
	stdout, stderr, status := weir(broken, "check", "-")
	require.Equal(t, 1, status)
	require.Empty(t, stdout)
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	require.Greater(t, len(lines), 1)
	require.Contains(t, lines, "<stdin>:14:15: order: Rank 0, action 1: 1B0 runs before 1F0, which saves the state it takes; move 1F0 before it.")
	require.Contains(t, lines, "<stdin>:14:29: action twice: Rank 0, action 3: 0F0 is a duplicate; remove one of the two.")

	_, stderr, status = weir(good+strings.Repeat("x 1 +0: 0F0 1F0 1B0 0B0\n", 9), "check", "-")
	require.Equal(t, 1, status)
	require.Regexp(t, `^(.*\n)+<stdin>: and \d+ more: use after drop\n<stdin>: and \d+ more: missing drop\n<stdin>: and \d+ more: retire\n$`, stderr)
	require.Equal(t, 6, strings.Count(stderr, "action twice"), "five, and how many more")

	// The fault of a missing action names the location after which it belongs.
	_, stderr, _ = weir("0F0,0F1,0F3,0B0,0B1,0B2,0B3\n", "check", "-")
	require.Contains(t, stderr, "<stdin>:1:5: missing action: Rank 0 never runs 0F2; add it after 0F1.\n")

	// With --json the same is on standard output, and the faults are on standard error as well.
	stdout, stderr, status = weir(broken, "check", "-", "--json")
	require.Equal(t, 1, status)
	var outcome struct {
		Valid  bool
		Faults []struct {
			File, Code, Text string
			Line, Column     int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &outcome))
	require.False(t, outcome.Valid)
	require.Len(t, outcome.Faults, len(lines))
	for i, f := range outcome.Faults {
		require.Equal(t, lines[i], fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Code, f.Text))
	}
	require.Equal(t, strings.Join(lines, "\n")+"\n", stderr)

	// Two ranks that wait for each other because of the capacity of their links.
	crossed := "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n"
	stdout = succeeds(t, crossed, "check", "-", "--from", "comms")
	require.Contains(t, stdout, "; over NCCL, unless it buffers the messages, hangs with pytorch-2.9, pytorch-2.14, pytorch-2.15, pytorch-2.15-lazy; ")
	_, stderr, status = weir(crossed, "check", "-", "--from", "comms", "--runtime", "pytorch-2.15")
	require.Equal(t, 1, status)
	require.Regexp(t, `^<stdin>:1:23: deadlock: Ranks 0 and 1 wait for each other: rank 0 is at action 3, 0B0, and waits for 1SEND_B0 of rank 1, with 1RECV_F1 in front in the queue; rank 1 is at action 5, 1F1, and waits for 0SEND_F1 of rank 0;`, stderr)
	_, stderr, status = weir(crossed, "check", "-", "--from", "comms", "--runtime", "weir")
	require.Equal(t, 1, status)
	require.Regexp(t, `^<stdin>:1:14: deadlock: Ranks 0 and 1 wait for each other: .*0RECV_B0.*1RECV_F1`, stderr)
	tight, _, _ := weir("", "plan", "1f1b", "--ranks", "4", "--to", "comms", "--capacity", "1")
	succeeds(t, tight, "check", "-", "--capacity", "1")
	fails(t, atFault, "deadlock: ", tight, "check", "-", "--capacity", "0")
}

// TestSim checks the names and the values of the fields of weir sim --json.
func TestSim(t *testing.T) {
	type simulated struct {
		Makespan, Span, Ideal float64
		BubbleMakespan        float64   `json:"bubble_makespan"`
		BubbleSpan            float64   `json:"bubble_span"`
		Peak                  []float64 `json:"peak_microbatches_by_rank"`
		PeakIHalf             []float64 `json:"peak_microbatches_i_half_by_rank"`
	}
	sim := func(args string) (s simulated) {
		stdout := succeeds(t, "", append([]string{"sim", "--json"}, strings.Fields(args)...)...)
		require.NoError(t, json.Unmarshal([]byte(stdout), &s))
		return s
	}
	paper := " --f 18.522 --i 18.086 --w 9.337 --latency 0.601"
	one := sim("1f1b --ranks 8 --stages 8 --microbatches 24" + paper)
	require.Equal(t, "0.2431", fmt.Sprintf("%.4f", one.BubbleSpan))
	require.Equal(t, []float64{8, 7, 6, 5, 4, 3, 2, 1}, one.Peak)
	require.InDelta(t, 24*(18.522+18.086+9.337), one.Ideal, 1e-9)
	require.Equal(t, "0.1585", fmt.Sprintf("%.4f", sim("zb-h1 --ranks 8 --stages 8 --microbatches 24"+paper).BubbleSpan))
	require.Equal(t, []float64{8, 7.5, 7, 6.5, 6, 5.5, 5, 4.5}, sim("zb-h1 --ranks 8 --stages 8 --microbatches 24"+paper).PeakIHalf)

	v := sim("zb-v --ranks 4 --stages 8 --microbatches 12")
	require.Equal(t, simulated{37.5, 36, 36, 0.04, 0, []float64{4, 4, 4, 4}, []float64{4, 4, 4, 4}}, v)

	// A joined pair takes the sum unless a flag says otherwise.
	whole, less := sim("dualpipev --ranks 4 --microbatches 12"), sim("dualpipev --ranks 4 --microbatches 12 --fb 2.5")
	require.Less(t, less.Makespan, whole.Makespan)

	// A time that three stages cannot divide evenly.
	three := sim("interleaved --ranks 2 --stages 6 --microbatches 4 --f 1 --i 1 --w 1")
	require.Equal(t, 12.0, three.Ideal)

	// The same plan from a file.
	file := filepath.Join(t.TempDir(), "plan.csv")
	plan, _, _ := weir("", "plan", "1f1b", "--ranks", "8", "--stages", "8", "--microbatches", "24", "--to", "compute")
	require.NoError(t, os.WriteFile(file, []byte(plan), 0o644))
	require.Equal(t, one, sim(file+paper))
}

func TestChoose(t *testing.T) {
	costs := testkit.File(t, "costs.json", `{"schema": 1, "unit": "ms", "latency": 1,
		"stages": [{"f": 10, "i": 10, "w": 10, "saved": 1048576, "output": 1024, "gradient": 1024}]}`)
	best := filepath.Join(t.TempDir(), "best.json")
	choice := decoded[chosen](t, good, "", "choose", "--ranks", "4", "--stages", "8", "--microbatches", "16", "--costs", costs, "--memory", "7MiB", "-o", best, "--json")
	require.Equal(t, choice.Best, choice.Front[0])
	for _, c := range choice.Candidates {
		require.Equal(t, c.PeakBytes > 0 && c.PeakBytes <= 7<<20, c.Fits, c.Name)
	}
	// Simulated with the costs in its file, the chosen plan has the figures that weir choose printed.
	again := decoded[struct{ Makespan float64 }](t, good, "", "sim", best, "--capacity", "1", "--json")
	i := slices.IndexFunc(choice.Candidates, func(c candidate) bool { return c.Name == choice.Best })
	require.Equal(t, choice.Candidates[i].Makespan, again.Makespan)

	fails(t, atFault, "no plan fits into 1.0 MiB: the smallest is v-min, which needs 4.0 MiB on a rank", "", "choose", "--ranks", "4", "--stages", "8", "--microbatches", "16", "--costs", costs, "--memory", "1MiB")
}

// A cap below one microbatch is respected.
func TestChooseSmallCap(t *testing.T) {
	_, stderr, status := weir("", "choose", "--ranks", "4", "--microbatches", "8", "--cap", "0.1")
	require.Equal(t, 1, status)
	require.Equal(t, "weir: no plan fits into 0.1 mb: the smallest is v-min, which needs 2 mb on a rank\n", stderr)
}

// The file of a plan that was chosen with memory in microbatches keeps this unit.
func TestChooseKeepsMicrobatches(t *testing.T) {
	best := filepath.Join(t.TempDir(), "best.json")
	succeeds(t, "", "choose", "--ranks", "2", "--microbatches", "8", "--cap", "2", "-o", best)
	stdout, _, _ := weir("", "sim", best)
	require.Contains(t, stdout, "peak, mb")
	stdout, _, _ = weir("", "draw", best)
	require.Contains(t, stdout, ">peak 2<")
	_, stderr, _ := weir("", "mem", "plan", best)
	require.Contains(t, stderr, "--costs with the bytes of each stage")
}

// weir tells the user if it reads a file as one with old letters, or if the file looks like one by mistake.
func TestLetters(t *testing.T) {
	doubled := "0F0,0F1,0B0,0W0,0B1,0W1\n1F0,1B0,1W0,1F1,1B1,1W1\n"
	stdout := succeeds(t, doubled, "check", "-")
	require.Contains(t, stdout, "The letters are read as those of 2024")
	fails(t, atFault, "mixed backward", doubled, "check", "-", "--letters", "today")
	fails(t, atFault, "note: The letters are read as those of 2024", "0F0,0F1,0B0,0W0,0B1\n1F0,1B0,1F1,1B1\n", "check", "-")
}

// A note names a microbatch whose number is far above those of all others.
func TestOutlier(t *testing.T) {
	fails(t, atFault, "<stdin>:1:9: note: 0F99 makes this a plan of 100 microbatches", "0F0,0F1,0F99,0B0,0B1\n", "check", "-", "--from", "compute")
}

// Plans whose placements divide the work unevenly cannot be compared by their bubbles, but by their idle time.
func TestChooseComparesPlacements(t *testing.T) {
	costs := testkit.File(t, "costs.json", `{"schema": 1, "unit": "ms", "stages": [
		{"f": 30, "i": 30, "w": 30, "saved": 64}, {"f": 10, "i": 10, "w": 10, "saved": 64}, {"f": 10, "i": 10, "w": 10, "saved": 64}, {"f": 20, "i": 20, "w": 20, "saved": 64}]}`)
	choice := decoded[chosen](t, good, "", "choose", "--ranks", "2", "--microbatches", "8", "--costs", costs, "--json")
	made := slices.DeleteFunc(choice.Candidates, func(c candidate) bool { return c.Refused != "" })
	bubble := func(a, b candidate) int { return cmp.Compare(a.BubbleMakespan, b.BubbleMakespan) }
	require.False(t, slices.IsSortedFunc(made, bubble), "here a slower plan has a smaller bubble")
	for i, c := range made {
		require.InDelta(t, 1-8*3*70/(2*c.Makespan), c.IdleMakespan, 1e-9, c.Name)
		if i > 0 && c.Makespan > made[i-1].Makespan {
			require.Greater(t, c.IdleMakespan, made[i-1].IdleMakespan)
		}
	}
}

// A plan has the same makespan for a runtime when it is chosen, when its file is read, in every form to
// which it is converted, and with its capacity given explicitly.
func TestOneMakespan(t *testing.T) {
	dir := t.TempDir()
	costs := filepath.Join(dir, "costs.json")
	require.NoError(t, os.WriteFile(costs, []byte(`{"schema": 1, "unit": "ms", "latency": 8,
		"stages": [{"f": 10, "i": 12, "w": 7, "saved": 1048576}]}`), 0o644))
	makespan := func(args ...string) float64 {
		outcome := decoded[struct{ Makespan float64 }](t, good, "", append([]string{"sim", "--json", "--costs", costs}, args...)...)
		return outcome.Makespan
	}
	convert := func(file, form, name string) string {
		out := succeeds(t, "", "convert", file, "--to", form)
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(out), 0o644))
		return name
	}
	both := map[string]float64{}
	for _, runtime := range []string{"weir", "pytorch"} {
		best := filepath.Join(dir, runtime+".json")
		choice := decoded[chosen](t, good, "", "choose", "--ranks", "4", "--stages", "8", "--microbatches", "16", "--costs", costs, "--memory", "5MiB", "--runtime", runtime, "-o", best, "--json")
		i := slices.IndexFunc(choice.Candidates, func(c candidate) bool { return c.Name == choice.Best })
		promised := choice.Candidates[i].Makespan
		both[runtime] = promised

		csv, compute := convert(best, "comms", runtime+".csv"), convert(best, "compute", runtime+"-compute.csv")
		text := convert(best, "text", runtime+".txt")
		again := convert(text, "json", runtime+"-again.json")
		for _, file := range []string{best, text, again, csv, convert(csv, "json", runtime+"-csv.json")} {
			require.Equal(t, promised, makespan(file, "--runtime", runtime), file)
		}
		for _, file := range []string{best, again, convert(compute, "plan", runtime+"-lifetimes.json")} {
			checked := succeeds(t, "", "check", file)
			require.Contains(t, checked, "in flight per stage")
		}
		for _, file := range []string{best, text, again} {
			require.Equal(t, promised, makespan(file), file)
			require.Equal(t, promised, makespan(file, "--capacity", "1"), file)
		}
		require.Equal(t, makespan(best, "--runtime", "pytorch"), makespan(csv), "PyTorch's CSV is for PyTorch")
		if runtime == "weir" { // for PyTorch, receives are placed according to the costs, which a compute-only file does not contain
			require.Equal(t, promised, makespan(compute, "--runtime", "weir", "--capacity", "1"))
		}
	}
	require.NotEqual(t, both["pytorch"], both["weir"])
	fails(t, misused, `"pytorch-2.15-edge" but got "jax"`, "", "sim", "1f1b", "--runtime", "jax")
}

// An error says so if a compute-only file is read as one with transfers.
func TestCommsWithoutTransfers(t *testing.T) {
	_, stderr, status := weir("", "check", "testdata/1f1b.csv", "--from", "comms")
	require.Equal(t, misused, status)
	require.Contains(t, stderr, "testdata/1f1b.csv:1:1: ")
	require.Contains(t, stderr, "compute")
}

// PyTorch 2.15 refuses a send without a wait, and older versions refuse a wait. Each form can be written by
// its name, and faults use the words of the file.
func TestFormsOfPyTorch(t *testing.T) {
	now, _, _ := weir("", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--replicas", "2", "--to", "comms")
	require.Equal(t, 8, strings.Count(now, "SEND_")-strings.Count(now, "WAIT_SEND_"))
	require.Equal(t, 8, strings.Count(now, "WAIT_SEND_"))
	require.Equal(t, 2, strings.Count(now, "WAIT_REDUCE_GRAD"))
	older, _, _ := weir("", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--replicas", "2", "--to", "comms-2.6")
	require.NotContains(t, older, "WAIT")
	converted := succeeds(t, now, "convert", "-", "--to", "comms-2.6")
	require.Equal(t, older, converted)
	updated := succeeds(t, older, "convert", "-", "--to", "comms")
	require.Equal(t, 8, strings.Count(updated, "WAIT_SEND_"))
	for _, text := range []string{now, older, updated} {
		succeeds(t, text, "check", "-")
	}
	fails(t, atFault, "missing action: Rank 0 never runs 0WAIT_SEND_F1; add it after 0WAIT_SEND_F0.", strings.Replace(now, "0WAIT_SEND_F1,", "", 1), "check", "-")
}

// A schedule given by name gets transfers if --capacity is given.
func TestNamesWithCapacity(t *testing.T) {
	bare, _, _ := weir("", "check", "interleaved", "--ranks", "2", "--microbatches", "9")
	require.Contains(t, bare, "72 actions")
	lowered := succeeds(t, "", "check", "interleaved", "--ranks", "2", "--microbatches", "9", "--capacity", "0")
	require.Contains(t, lowered, "safe under rendezvous")
	sim := func(capacity string) string {
		out, _, _ := weir("", "sim", "interleaved", "--ranks", "2", "--microbatches", "9", "--capacity", capacity)
		return strings.Split(out, "\n")[2]
	}
	require.Contains(t, sim("1"), "makespan 29.5 ")
	require.NotEqual(t, sim("1"), sim("0"), "rendezvous costs time here")
}

// If a form is requested, old letters are written as today's; otherwise they are kept. PyTorch 2.15 reads
// 0B0 as a full backward.
func TestConvertWritesTodaysLetters(t *testing.T) {
	for old, today := range map[string]string{
		"0F0,0B0,0W0\n":          "0F0,0I0,0W0\n",
		"0F0,,0F1,0BW0,0BW1\r\n": "0F0,0F1,0B0,0B1\n",
		"0F0,0SEND_F0,0RECV_B0,0B0,0W0\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\n": "0F0,0SEND_F0,0RECV_B0,0I0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n",
	} {
		form := "compute"
		if strings.Contains(old, "SEND") {
			form = "comms-2.6"
		}
		same := succeeds(t, old, "convert", "-")
		require.Equal(t, old, same)
		converted := succeeds(t, old, "convert", "-", "--to", form)
		require.Equal(t, today, converted)
	}
}

// TestConvertGivesLifetimes converts files of other forms to plan files, and expects the lifetimes and
// loops of the plan that the rule makes.
func TestConvertGivesLifetimes(t *testing.T) {
	flat := func(text string) (programs [][]schedule.Action) {
		file, err := format.Read(strings.NewReader(text), format.Options{})
		require.NoError(t, err)
		for rank := range file.Plan.Programs {
			programs = append(programs, slices.Collect(file.Plan.All(rank)))
		}
		return programs
	}
	for _, s := range schedule.Schedules() {
		name, flags := s.Name, []string{"--ranks", "2", "--microbatches", "128"}
		if name == "seq1f1b" { // no other form says how many slices a sequence has
			continue
		}
		planned := map[string]string{} // by runtime
		for _, runtime := range []string{"pytorch", "weir"} {
			want := succeeds(t, "", append([]string{"plan", name, "--runtime", runtime, "--to", "plan"}, flags...)...)
			back := succeeds(t, want, "convert", "-", "--runtime", "pytorch", "--to", "plan")
			require.Contains(t, back, `"runtime": "pytorch"`)
			require.Contains(t, back, `"microbatch"]`)
			planned[runtime] = want
		}
		for _, form := range []string{"compute", "comms", "comms-2.6", "order", "text"} {
			want := planned["pytorch"]
			if form == "order" || form == "text" {
				want = planned["weir"]
			}
			other, stderr, status := weir("", append([]string{"plan", name, "--to", form}, flags...)...)
			if form == "order" && status != 0 {
				require.Contains(t, stderr, "order: ")
				continue
			}
			require.Zero(t, status, stderr)
			got := succeeds(t, other, "convert", "-", "--to", "plan")
			require.Equal(t, flat(want), flat(got), "%s from %s", name, form)
			require.Less(t, len(got), max(2*len(want), 20<<10), "%s from %s", name, form)
			checked := succeeds(t, got, "check", "-")
			require.NotContains(t, checked, "no lifetimes")
		}
	}
	fails(t, atFault, "<stdin>:1:1: missing action: Rank 0 never runs 0F1", "0F0,0B1\n", "convert", "-", "--to", "plan")
}

// A plan of schema 1 is refused with the command that converts it.
func TestConvertsOldSchema(t *testing.T) {
	const old = `{"schema": 1, "name": "n", "mode": "training", "ranks": 1, "placement": [0], "microbatches": 9, "programs": [[{"repeat": 9, "stride": 1, "actions": "0F0 0I0 0W0"}]]}`
	fails(t, misused, "found schema 1, expected 2: weir convert OLD --to plan -o NEW converts the file", old, "sim", "-")
	converted := succeeds(t, old, "convert", "-", "--to", "plan")
	require.Contains(t, converted, `{"repeat": 9, "stride": 1, "actions": [["F",0,0`)
	succeeds(t, converted, "sim", "-")
}

// TestChooseWithoutBytes uses costs that give no bytes, as weir trace writes them. weir choose then counts
// memory in microbatches, and refuses a limit in bytes.
func TestChooseWithoutBytes(t *testing.T) {
	costs, best := filepath.Join(t.TempDir(), "costs.json"), filepath.Join(t.TempDir(), "best.json")
	write := func(stage string) {
		text := `{"schema": 1, "unit": "ms", "scale": 1000, "latency": 0, "per_mib": 0, "stages": [` + stage + `, {"f": 2000, "i": 1300, "w": 1300}, {"f": 2100, "i": 1500, "w": 1500}]}`
		require.NoError(t, os.WriteFile(costs, []byte(text), 0o600))
	}
	choosing := func(flags ...string) (string, string, int) {
		return weir("", append([]string{"choose", "--ranks", "3", "--microbatches", "8", "--costs", costs, "-o", best}, flags...)...)
	}
	write(`{"f": 1200, "i": 1000, "w": 1000}`)
	stdout, stderr, status := choosing("--cap", "2", "--json")
	require.Zero(t, status, stderr)
	var choice chosen
	require.NoError(t, json.Unmarshal([]byte(stdout), &choice))
	for _, one := range choice.Candidates {
		require.True(t, one.Refused != "" || one.Peak >= 1 && one.PeakBytes == 0, one.Name)
		require.Equal(t, one.Refused == "" && one.Peak <= 2, one.Fits, one.Name)
	}
	stdout = succeeds(t, "", "sim", best)
	require.Contains(t, stdout, "peak, mb")
	stdout, _, status = choosing()
	require.Zero(t, status)
	require.NotContains(t, stdout, "0 B")
	for _, flags := range [][]string{{"--memory", "1KiB"}, {"--far", "1GiB"}} {
		_, stderr, status = choosing(flags...)
		require.Equal(t, misused, status)
		require.Contains(t, stderr, "--memory and --far count bytes, and no stage in "+costs+" has saved bytes, so that every plan would fit")
	}

	write(`{"f": 1200, "i": 1000, "w": 1000, "saved": 4096}`)
	_, stderr, status = choosing("--cap", "2")
	require.Equal(t, misused, status)
	require.Contains(t, stderr, "--cap counts microbatches, and the sizes in "+costs+" are bytes: give --memory")
	write(`{"f": 1200, "i": 1000, "w": 1000, "resident": 4096}`)
	_, stderr, status = choosing("--memory", "1KiB")
	require.Equal(t, misused, status)
	require.Contains(t, stderr, "no stage in")
}

// weir convert can write to the file that it reads. If it fails, the file is unchanged.
func TestConvertWritesAFile(t *testing.T) {
	folder := t.TempDir()
	plan, other := filepath.Join(folder, "plan.csv"), filepath.Join(folder, "plan")
	require.NoError(t, os.WriteFile(plan, []byte("0F0,0B0\n"), 0o600))
	for _, args := range [][]string{
		{"convert", plan, "--to", "plan", "-o", other}, {"convert", other, "--to", "compute", "-o", other}, {"convert", other, "-o", plan},
	} {
		stdout, stderr, status := weir("", args...)
		require.Zero(t, status, stderr)
		require.Empty(t, stdout+stderr)
	}
	content := []byte(testkit.Read(t, plan))
	require.Equal(t, "0F0,0B0\n", string(content))
	require.NoError(t, os.WriteFile(other, []byte("0F0,0B1\n"), 0o600))
	_, _, status := weir("", "convert", other, "--to", "comms", "--ranks", "2", "-o", plan)
	require.NotZero(t, status)
	content, err := os.ReadFile(plan)
	require.NoError(t, err)
	require.Equal(t, "0F0,0B0\n", string(content))
}

// weir convert adds transfers to a compute-only file.
func TestConvertLowers(t *testing.T) {
	compute, _, _ := weir("", "plan", "zb-v", "--ranks", "2", "--microbatches", "4", "--to", "compute")
	comms, _, _ := weir("", "plan", "zb-v", "--ranks", "2", "--microbatches", "4", "--to", "comms")
	converted := succeeds(t, compute, "convert", "-", "--to", "comms")
	require.Equal(t, comms, converted)
}

// Without a command weir lists the commands.
func TestNoCommand(t *testing.T) {
	help := succeeds(t, "", "--help")
	out, stderr, status := weir("")
	require.Equal(t, misused, status)
	require.Equal(t, help, stderr)
	require.Empty(t, out)
}

// Each error is one line that says what to do.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "plan.txt")
	require.NoError(t, os.WriteFile(text, []byte("weir plan 1\nname depth-first\n"), 0o644))
	for _, test := range []struct {
		args, want string
		status     int
	}{
		{"drow", `weir: unexpected argument drow, did you mean "draw"? (see weir --help)`, 2},
		{"mem leeks", `weir: there is no file leeks, nor a command weir mem leeks: did you mean leaks? There are log, plan, diff, export, leaks`, 2},
		{"help ErrLeek", `weir: unexpected argument ErrLeek, did you mean ErrLeak? weir help errors lists all errors`, 2},
		{"plan zb-v -o", `weir: --output: expected a value after it (see weir plan --help)`, 2},
		{"plan zb-v --ranks 1e20", `weir: --ranks: 1e20 is too large (see weir plan --help)`, 2},
		{"mem lgo a.jsonl", `weir: there is no file lgo, nor a command weir mem lgo: there are log, plan, diff, export, leaks`, 2},
		{"sim 1f1b --costs ../../docs/pack/costs.json --lengths /dev/null", `/dev/null: it has no lengths: give a line with the lengths of the sequences of each microbatch`, 2},
		{"pack /dev/null --ranks 4 --tokens 8 --costs ../../docs/pack/costs.json", `/dev/null: it has no lengths: give a line with the lengths of the sequences of each batch`, 2},
		{"plan", `weir: expected "<name>" (see weir plan --help)`, 2},
		{"plan 1f1b --rank 2", `weir: unknown flag --rank, did you mean "--ranks"? (see weir plan --help)`, 2},
		{"plan 1f1b --stages two", `weir: --stages: expected a whole number, such as 16 or 1e6, but got "two" (see weir plan --help)`, 2},
		{"plan 1f1b --to svg", `weir: --to must be one of "auto","text","compute","comms","comms-2.6","order","plan","json" but got "svg" (see weir plan --help)`, 2},
		{"plan 1f1b --ranks 0", `weir: --ranks 0: give 1 to 1024`, 2},
		{"plan 1f1b --ranks 16384", `weir: --ranks 16384: give 1 to 1024`, 2},
		{"choose --ranks 1025 --microbatches 8", `weir: --ranks 1025: give 1 to 1024`, 2},
		{"plan 1f1b --stages 99999", `weir: --stages 99999: give 1 to 16384`, 2},
		{"plan 1f1b --microbatches -1", `weir: --microbatches -1: give 1 to 268435456`, 2},
		{"plan gpipe --descending", `weir: --descending is for breadth-first only`, 2},
		{"plan 1f1b --frozen 4", `weir: --frozen 4: stages are 0 to 3`, 2},
		{"plan 1f1b --placement 0,1,2,4", `weir: --placement 0,1,2,4: "4" is not a rank: give looped, wave, or a rank from 0 to 3 for each stage`, 2},
		{"plan 1f1b --capacity -2", `weir: --capacity -2: give 0 or more, or -1 for no limit`, 2},
		{"plan 1f1b --microbatches 0", `weir: --microbatches 0: give 1 to 268435456`, 2},
		{"plan 1f1b --group 3", `weir: 1f1b has no groups: leave out --group 3`, 2},
		{"check testdata/1f1b.csv --group 3", `weir: --group is for a schedule given by name; testdata/1f1b.csv is a file: leave out the flag`, 2},
		{"check testdata", `weir: read testdata: is a directory`, 2},
		{"check 1f1b --from compute", `weir: --from is for a plan file; 1f1b is a schedule: leave out the flag`, 2},
		{"check 1f1b --letters old", `weir: --letters is for a plan file; 1f1b is a schedule: leave out the flag`, 2},
		{"plan testdata/1f1b.csv", `weir: plan takes the name of a schedule; use weir check, sim, draw or convert for testdata/1f1b.csv`, 2},
		{"plan -", `weir: plan takes the name of a schedule; use weir check, sim, draw or convert for -`, 2},
		{"choose --ranks 4 --microbatches 8 --costs testdata", `weir: read testdata: is a directory`, 2},
		{"place testdata", `weir: read testdata: is a directory`, 2},
		{"mem leaks testdata", `weir: read testdata: is a directory`, 2},
		{"mem log testdata", `weir: read testdata: is a directory`, 2},
		{"mem export 1f1b", `weir: give --to snapshot, perfetto or csv, or give --output a file that ends in .pickle, .json or .csv`, 2},
		{"sim 1f1b --costs testdata --f 3", `weir: --f cannot be used with --costs: the file contains all costs`, 2},
		{"choose --ranks 4 --microbatches 8 --capacity -3", `weir: --capacity -3: give 0 or more, or -1 for no limit`, 2},
		{"choose --ranks 4 --microbatches 8 --cap 0", `weir: --cap 0: give more than 0 microbatches, up to 1000000`, 2},
		{"choose --ranks 4 --microbatches 8 -o none/best.json", `weir: open none/best.json: no such file or directory`, 2},
		{"sim 1f1b --f one", `weir: --f: "one" is not a time: give a number from 0 to 1000000000 with up to nine decimal places (see weir sim --help)`, 2},
		{"sim 1f1b --costs none.json", `weir: open none.json: no such file or directory`, 2},
		{"choose --ranks 4 --microbatches 8 --memory 1GiB", `weir: --memory counts bytes: give --costs with the bytes of each stage, or --cap in microbatches`, 2},
		{"check", `weir: expected "<schedule|file>" (see weir check --help)`, 2},
		{"check " + dir + "/none", `weir: open ` + dir + `/none: no such file or directory`, 2},
		{"check " + text, text + `:2:6: found "depth-first", expected a name in double quotes`, 2},
	} {
		stdout, stderr, status := weir("", strings.Fields(test.args)...)
		require.Equal(t, test.want+"\n", stderr)
		require.Empty(t, stdout)
		require.Equal(t, test.status, status, test.args)
	}
	_, stderr, status := weir("", "plan", "zb-vv")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, `weir: there is no schedule "zb-vv"; did you mean zb-v?`)
	_, again, status := weir("", "sim", "zb-vv")
	require.Equal(t, 2, status)
	require.Equal(t, strings.TrimSuffix(stderr, "\n")+"; there is no file of that name either\n", again)
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "plan --help", "check --help", "sim --help", "choose --help", "draw --help", "convert -help"} {
		stdout, stderr, status := weir("", strings.Fields(args)...)
		require.Contains(t, stdout, "Usage: weir")
		require.Empty(t, stderr)
		require.Zero(t, status)
	}
}

// All commands share the exit statuses: 0 for success, 1 for a finding, 2 for a wrong
// command line or an unusable file. With status 0 nothing is printed on standard error.
func TestExitStatuses(t *testing.T) {
	costs := testkit.File(t, "costs.json", `{"schema": 1, "stages": [{"f": 3, "i": 2, "w": 1, "saved": 1048576}]}`)
	costs = " --costs " + costs
	invalid := "0F0,0B0,0F1\n"
	const snapshot = "../../docs/snapshots/kept-loss.pickle"
	for args, want := range map[string]struct {
		stdin  string
		status int
	}{
		"--version":                         {"", good},
		"":                                  {"", misused},
		"help":                              {"", good},
		"help mem plan":                     {"", good},
		"help nothing":                      {"", misused},
		"checkpoint verify none":            {"", misused},
		"completion bash":                   {"", good},
		"completion zsh":                    {"", good},
		"completion fish":                   {"", good},
		"completion tcsh":                   {"", misused},
		"plan 1f1b":                         {"", good},
		"plan 1f1b --to csv":                {"", misused},
		"plan none":                         {"", misused},
		"check 1f1b":                        {"", good},
		"check -":                           {invalid, atFault},
		"check none.csv":                    {"", misused},
		"check - --from auto":               {"", misused},
		"check - --json":                    {"{}", misused},
		"check - --from compute":            {"\x1f\x8b\x08", misused},
		"sim 1f1b":                          {"", good},
		"sim -":                             {invalid, atFault},
		"sim 1f1b --f x":                    {"", misused},
		"sim 1f1b --f 1e":                   {"", misused},
		"sim 1f1b --f 1e10":                 {"", misused},
		"sim 1f1b --f 1.5e3 --w 1_000":      {"", good},
		"draw 1f1b":                         {"", good},
		"draw -":                            {invalid, atFault},
		"draw 1f1b --to png":                {"", good},
		"draw 1f1b -o picture.gif":          {"", misused},
		"draw 1f1b --to png -o y.svg":       {"", misused},
		"plan 1f1b -o plan.foo":             {"", misused},
		"convert - --to order":              {"0F0,0B0\n", good},
		"convert -":                         {"0F0,x\n", misused},
		"convert none.csv":                  {"", misused},
		"choose --ranks 1 --microbatches 2": {"", good},
		"choose --ranks 2 --microbatches 2 --stages 2 --memory 1" + costs: {"", atFault},
		"choose --ranks 1":   {"", misused},
		"place -":            {pinwheel, good},
		"place - --memory 9": {pinwheel, atFault},
		"place none.csv":     {"", misused},
		"mem log -":          {memoryLog(0), good},
		"mem -":              {memoryLog(1024), atFault},
		"mem - --exit-zero":  {memoryLog(1024), good},
		"mem none.jsonl":     {"", misused},
		"mem diff - ../../docs/memory-log/none.jsonl":           {memoryLog(0), misused},
		"mem leaks " + snapshot:                                 {"", atFault},
		"mem leaks --exit-zero " + snapshot:                     {"", good},
		"mem leaks none.pickle":                                 {"", misused},
		"mem plan 1f1b --ranks 1 --stages 1" + costs:            {"", good},
		"mem plan 1f1b --ranks 1 --stages 1 --memory 1" + costs: {"", atFault},
		"mem plan 1f1b":                                         {"", misused},
		"launch -n 0 -- true":                                   {"", misused},
		"launch -n 1025 -- true":                                {"", misused},
		"mem export 1f1b --ranks 1 --stages 1 --to csv" + costs: {"", good},
		"mem export - --to csv" + costs:                         {invalid, atFault},
	} {
		stdout, stderr, status := weir(want.stdin, strings.Fields(args)...)
		require.Equal(t, want.status, status, "weir %s: %s", args, stderr)
		if status == good {
			require.Empty(t, stderr, args)
			require.NotEmpty(t, stdout, args)
		} else {
			require.NotEmpty(t, stdout+stderr, args)
		}
	}
}

// Completion offers commands, flags, their values and schedules, but no flag by an old name.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"weir ch":             "check checkpoint choose",
		"weir mem le":         "leaks",
		"weir plan zb-h":      "zb-h1 zb-h2",
		"weir plan 1f1b --mi": "--microbatches",
		"weir draw --to p":    "perfetto png",
		"weir plan --for":     "--forward-only",
	} {
		t.Setenv("COMP_LINE", line)
		stdout := succeeds(t, "")
		words := strings.Fields(stdout)
		slices.Sort(words)
		require.Equal(t, want, strings.Join(words, " "), line)
	}
}

// Completion works in zsh even if compinit has not been loaded.
func TestCompletionLoadsCompinit(t *testing.T) {
	stdout, _, _ := weir("", "completion", "zsh")
	require.True(t, strings.HasPrefix(stdout, "#compdef weir\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"), stdout)
}

// A full disk is an error.
func TestFullDisk(t *testing.T) {
	for _, args := range []string{"plan 1f1b", "check testdata/one-stage.txt", "sim 1f1b", "sim 1f1b --json", "draw 1f1b", "convert testdata/1f1b.csv", "choose --ranks 2 --microbatches 4",
		"--version", "--help", "help ErrLeak", "help mem plan", "completion fish"} {
		var stderr bytes.Buffer
		require.Equal(t, misused, run(strings.Fields(args), strings.NewReader(""), fullDisk{}, &stderr), args)
		require.Contains(t, stderr.String(), "no space left\n", args)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

var _ io.Writer = fullDisk{}

// sim prints a note if the costs give times for copies of weights and the plan makes no copies.
func TestSimWithoutCopies(t *testing.T) {
	file := testkit.File(t, "costs.json", `{"schema": 1, "stages": [{"f": 3, "i": 2, "w": 1, "quantize": 5, "forward_weights": 7}]}`)
	const note = "The costs give times for copies of weights, and this plan makes no copies: --quantize before-use does."
	stdout := succeeds(t, "", "sim", "1f1b", "--costs", file)
	require.Contains(t, stdout, note)
	stdout = succeeds(t, "", "sim", "1f1b", "--costs", file, "--quantize", "before-use")
	require.NotContains(t, stdout, note)
}

// TestDrawOffload draws copies to far memory, and the microbatches that sim finds near.
func TestDrawOffload(t *testing.T) {
	stdout := succeeds(t, "", "draw", "zb-v", "--ranks", "4", "--microbatches", "8", "--far-time", "0.5", "--offload", "all")
	require.Contains(t, stdout, "copy to far memory")
	require.Contains(t, stdout, "peak 3.5 microbatches in flight on rank 3")
}
