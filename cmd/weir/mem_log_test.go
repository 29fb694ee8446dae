package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// memoryLog returns a log of two ranks in the minimal form; the second rank grows by this many bytes per microbatch.
func memoryLog(growth int) string {
	var b strings.Builder
	for mb := range 40 {
		for rank := range 2 {
			level := 1<<20 + rank*growth*mb
			fmt.Fprintf(&b, `{"step":7,"rank":%d,"microbatch":%d,"allocated":%d,"reserved":%d,"peak":%d}`+"\n", rank, mb, level, 2<<20, level+4096)
		}
	}
	return b.String()
}

const memoryText = `2 ranks, 1 step of 40 microbatches, 80 records in the minimal form

  rank               level     peak  reserved  growth per microbatch
     0             1.0 MiB  1.0 MiB   2.0 MiB                    0 B
     1  1.0 MiB + 39.0 KiB  1.0 MiB   2.0 MiB                1.0 KiB

rank 1 grows by 1.0 KiB with every microbatch, from step 7, microbatch 1 on; still growing at the end: yes
`

func TestMem(t *testing.T) {
	path := testkit.File(t, "log.jsonl", memoryLog(1024))
	for _, args := range [][]string{{"mem", path}, {"mem", "log", path}} {
		stdout, stderr, status := weir("", args...)
		require.Empty(t, stderr)
		require.Equal(t, atFault, status)
		require.Equal(t, memoryText, stdout)
	}
	stdout := succeeds(t, memoryLog(1024), "mem", "-", "--exit-zero")
	require.Equal(t, memoryText, stdout)

	// Each rank may have its own log. A rank that is in two logs is refused.
	lines, ranks := strings.SplitAfter(memoryLog(1024), "\n"), [2]string{}
	for i, line := range lines {
		ranks[i%2] += line
	}
	second := testkit.File(t, "second.jsonl", ranks[1]+"\n{")
	stdout, stderr, status := weir(ranks[0], "mem", "-", second)
	require.Equal(t, atFault, status, stderr)
	require.Equal(t, memoryText+"line 42 of "+second+" is incomplete and left out: its writer is still running, or was stopped\n", stdout)
	fails(t, misused, "rank 1 is in "+second+" and in -: give logs of one run; cat joins the files of a rank", ranks[1], "mem", second, "-")

	summary := decoded[memreport.Summary](t, atFault, memoryLog(1024), "mem", "-", "--json")
	require.Equal(t, 1, *summary.GrowthRank)
	require.Equal(t, 1024.0, summary.Growth.PerMicrobatch)
}

func TestMemFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	succeeds(t, memoryLog(0), "mem", "-", "--html", file("page.html"), "--csv", file("log.csv"), "--trace", file("log.json"))
	for name, want := range map[string]string{"page.html": "<!DOCTYPE html>", "log.csv": "time,step,rank", "log.json": `{"displayTimeUnit"`} {
		text := testkit.Read(t, file(name))
		require.True(t, strings.HasPrefix(text, want), name)
	}

	// A file that cannot be written is an error, and an incomplete file is removed.
	for _, flag := range []string{"--html", "--csv", "--trace"} {
		fails(t, misused, "no such file or directory", memoryLog(0), "mem", "-", flag, filepath.Join(folder, "none", "file"))
	}
	_, _, status := weir("", "mem", file("nothing"), "--csv", file("unfinished.csv"))
	require.Equal(t, 2, status)
	require.NoFileExists(t, file("unfinished.csv"))
}

// The last line of a stopped run is left out with a message; any other unreadable line is a
// fault with its location, and the remaining lines are shown.
func TestMemFaults(t *testing.T) {
	log := memoryLog(1024)
	stdout, stderr, status := weir(log+log[:30], "mem", "-")
	require.Empty(t, stderr)
	require.Equal(t, atFault, status)
	require.Equal(t, memoryText+"line 81 is incomplete and left out: its writer is still running, or was stopped\n", stdout)

	stdout, stderr, status = weir("epoch 1\n"+log+`{"step":1,"rank":-1,"microbatch":0,"allocated":1,"reserved":1,"peak":1}`+"\n", "mem", "-")
	require.Equal(t, 1, status)
	require.Equal(t, memoryText, stdout)
	require.Equal(t, "<stdin>:1:1: expected an object, found epoch\n"+
		"<stdin>:82:18: expected rank, an integer from 0 to "+strconv.Itoa(math.MaxInt)+", found -1\n", stderr)

	stdout, stderr, status = weir(strings.Repeat("x\n", 50), "mem", "-")
	require.Equal(t, misused, status)
	require.Empty(t, stdout)
	require.Equal(t, `<stdin>:1:1: expected an object, found x
<stdin>:2:1: expected an object, found x
<stdin>:3:1: expected an object, found x
<stdin>: and 47 lines more that cannot be read
<stdin>: no record: a memory log has a line for each microbatch, as docs/memory-log.md says
`, stderr)
	_, stderr, _ = weir(strings.Repeat("x\n", 50)+log, "mem", "-")
	require.Equal(t, 21, strings.Count(stderr, "\n"))
	require.True(t, strings.HasSuffix(stderr, "<stdin>: and 30 lines more that cannot be read\n"), stderr)

	for _, empty := range []string{"", "\n\n", `{"step`} {
		stdout, stderr, status = weir(empty, "mem", "-")
		require.Equal(t, misused, status)
		require.Empty(t, stdout)
		require.NotEmpty(t, stderr)
	}

	fails(t, misused, "<log>", "", "mem")

	var many strings.Builder
	for rank := range 1100 {
		fmt.Fprintf(&many, `{"step":7,"rank":%d,"microbatch":0,"allocated":1,"reserved":1,"peak":1}`+"\n", rank)
	}
	fails(t, misused, "too many ranks: rank 1024 would exceed the limit of 1024", many.String(), "mem", "-")
}

func TestMemDiff(t *testing.T) {
	folder := t.TempDir()
	a, b := filepath.Join(folder, "a.jsonl"), filepath.Join(folder, "b.jsonl")
	require.NoError(t, os.WriteFile(a, []byte(memoryLog(0)), 0o600))
	require.NoError(t, os.WriteFile(b, []byte(memoryLog(1024)), 0o600))

	stdout := succeeds(t, "", "mem", "diff", a, a)
	require.True(t, strings.HasPrefix(stdout, "the same, record by record\n\n  rank   peak A"), stdout)

	stdout, stderr, status := weir(memoryLog(1024), "mem", "diff", a, "-")
	require.Empty(t, stderr)
	require.Equal(t, 1, status)
	require.Equal(t, `first difference: step 7, rank 1, microbatch 1
  live  1,048,576  1,049,600  +1.0 KiB
  peak  1,052,672  1,053,696  +1.0 KiB

  rank   peak A        B  reserved A        B  growth A        B
     0  1.0 MiB  1.0 MiB     2.0 MiB  2.0 MiB       0 B      0 B
     1  1.0 MiB  1.0 MiB     2.0 MiB  2.0 MiB       0 B  1.0 KiB
`, stdout)

	out := decoded[comparison](t, atFault, "", "mem", "diff", a, b, "--json")
	require.Equal(t, 1, out.First.Rank)
	require.Equal(t, 1024.0, out.B.Growth.PerMicrobatch)

	for _, args := range [][]string{{a}, {"-", "-"}, {a, filepath.Join(folder, "none")}} {
		_, stderr, status = weir("", append([]string{"mem", "diff"}, args...)...)
		require.Equal(t, 2, status)
		require.NotEmpty(t, stderr)
	}
	_, stderr, status = weir("{]\n", "mem", "diff", a, "-")
	require.Equal(t, 2, status, "1 would say that they differ")
	require.Equal(t, `weir: <stdin>:1:2: found "]", expected the name of a field, in quotes
weir: <stdin>: no record: a memory log has a line for each microbatch, as docs/memory-log.md says
`, stderr)

	stdout = succeeds(t, memoryLog(0)+`{"step"`, "mem", "diff", a, "-")
	require.True(t, strings.HasSuffix(stdout, "\nthe last line of <stdin> is incomplete and left out\n"), stdout)
}

// Growth below --min-growth counts as noise.
func TestMemLogMinGrowth(t *testing.T) {
	var lines strings.Builder
	for m := range 64 {
		fmt.Fprintf(&lines, "{\"step\":0,\"rank\":0,\"microbatch\":%d,\"allocated\":%d,\"reserved\":9000,\"peak\":%d}\n", m, 1000+22*m, 1000+22*m)
	}
	for least, status := range map[string]int{"1": 1, "22": 1, "23": 0, "1KiB": 0} {
		stdout, stderr, got := weir(lines.String(), "mem", "log", "-", "--min-growth", least)
		require.Equal(t, status, got, stderr)
		require.Equal(t, status == 0, strings.Contains(stdout, "nothing grows"), stdout)
		page := filepath.Join(t.TempDir(), "log.html")
		weir(lines.String(), "mem", "log", "-", "--min-growth", least, "--html", page)
		html := testkit.Read(t, page)
		require.Equal(t, status == 1, strings.Contains(html, "grows from here"))
	}
}

func TestMemLeaks(t *testing.T) {
	const file = "../../docs/snapshots/kept-loss.pickle"
	stdout, stderr, status := weir("", "mem", "leaks", file, "--json")
	require.Empty(t, stderr)
	require.Equal(t, atFault, status)
	var found struct {
		Devices []struct {
			Microbatches int
			Growing      []struct {
				Site        string
				Each, First int64
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &found))
	require.Equal(t, 16, found.Devices[0].Microbatches)
	require.EqualValues(t, 164<<20, found.Devices[0].Growing[0].Each)
	require.EqualValues(t, 2, found.Devices[0].Growing[0].First)
	require.Contains(t, found.Devices[0].Growing[0].Site, "/home/me/model/loss.py:31:cross_entropy")

	content, err := os.ReadFile(file)
	require.NoError(t, err)
	piped, _, status := weir(string(content), "mem", "leaks", "-", "--microbatches", "16", "--exit-zero")
	require.Zero(t, status)
	require.Contains(t, piped, "16 microbatches, cut at the calls of embedding.py:12 forward\n")
	evenly, _, _ := weir(string(content), "mem", "leaks", "-", "--microbatches", "7")
	require.Contains(t, evenly, "7 microbatches, cut evenly: no site is called that often throughout the trace\n")

	for _, c := range []struct {
		in, want string
		status   int
		args     []string
	}{
		{in: "\x80\x02cos\nsystem\n", want: "<stdin>: snapshot: not a pickle of plain data: byte 2: opcode GLOBAL would run code", status: misused},
		{in: string(content[:5000]), want: "ends", status: misused},
		{in: "\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]u.", want: "_record_memory_history()", status: misused},
		{in: "\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]u.", want: "<stdin>: the snapshot has no trace", status: misused},
		{want: "weir: --microbatches -1: give 1 or more, or leave out the flag\n", status: misused, args: []string{"--microbatches", "-1"}},
		{want: "weir: --top -1: give 0 or more\n", status: misused, args: []string{"--top", "-1"}},
	} {
		_, stderr, status := weir(c.in, append([]string{"mem", "leaks", "-"}, c.args...)...)
		require.Contains(t, stderr, c.want)
		require.Equal(t, c.status, status, c.want)
	}
	_, _, status = weir("", "mem", "leaks", "nowhere.pickle")
	require.Equal(t, misused, status)
}
