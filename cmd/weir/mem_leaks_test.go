package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

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
