package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/check"
)

// torchrec is the exchange of meta-pytorch/torchrec#4472, in which both ranks send before they receive.
const torchrec = `0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
`

func TestCheckLinkBytes(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		return name
	}
	exchange := file("exchange.csv", torchrec)
	ordered := file("ordered.csv", strings.Replace(torchrec, "1SEND_B0,1RECV_F1", "1RECV_F1,1SEND_B0", 1))
	costs := file("costs.json", `{"schema": 1, "stages": [{"f": 1, "output": 20971520, "gradient": 1048576}]}`)
	byLength := file("rates.json", `{"schema": 1, "stages": [{"f": 1, "output": 0, "per_token": {"output": 8192, "gradient": 8192}}]}`)
	lengths := file("lengths.txt", "8000\n8192\n")
	for _, test := range []struct {
		flags, want string
		status      int
	}{
		{"--link-bytes 64MiB --message-bytes 64MiB", "; links must hold 64.0 MiB (67,108,864 bytes)", 0},
		{"--link-bytes 64MiB --message-bytes 65MiB", "exchange.csv:1:18: deadlock: Ranks 0 and 1 wait for each other: rank 0 is at action 3, 0SEND_F1, ", 1},
		{"--link-bytes 64MiB --message-bytes 65MiB", "note: Links that hold 65.0 MiB (68,157,440 bytes) are enough.", 1},
		{"--link-bytes 64MiB --message-bytes 65MiB --against " + exchange, "no worse than " + exchange, 1},
		{"--link-bytes 64MiB --message-bytes 20MiB --against " + ordered, "worse: link from rank 0 to rank 1, outputs: 0 B -> 20.0 MiB (20,971,520 bytes)\nworse: link from rank 1 to rank 0, gradients: 0 B -> 20.0 MiB", 1},
		{"--against " + ordered, "worse: link from rank 0 to rank 1, outputs: 0 messages -> 1 message\n", 1},
		{"--ranks 2 --microbatches 2 --against 1f1b", "no worse than 1f1b", 0},                 // 1f1b receives as late as possible
		{"--link-bytes 1MiB --costs " + costs, "links must hold 1.0 MiB (1,048,576 bytes)", 0}, // the gradient is enough
		{"--link-bytes 1 --costs " + costs, "deadlock", 1},
		{"--link-bytes 64MiB --costs " + byLength + " --lengths " + lengths, "links must hold 62.5 MiB (65,536,000 bytes)", 0}, // the gradient of microbatch 0
		{"--link-bytes 64MiB --costs " + byLength + " --seq 8192", "links must hold 64.0 MiB", 0},
		{"--link-bytes 64MiB --config ../../docs/fit/llama-3-8b.json --seq 8192", "links must hold 64.0 MiB", 0}, // 8,192 x 4,096 in bfloat16

		{"--link-bytes 64MiB --message-bytes 1MiB --runtime pytorch-2.15", "the transfers of pytorch-2.15 have queues", 2},
		{"--link-bytes 64MiB", "give the sizes of messages", 2},
		{"--message-bytes 1MiB", "the sizes of messages are for --link-bytes", 2},
		{"--link-bytes 64MiB --costs " + byLength, "no lengths are given", 2},
		{"--link-bytes 64MiB --costs " + file("times.json", `{"schema": 1, "stages": [{"f": 1}]}`), "the costs have no bytes for 0SEND_F0", 2},
		{"--link-bytes 64MiB --message-bytes 1MiB --against 1f1b", "it has 4 ranks, and exchange.csv 2", 2},
		{"--link-bytes 64MiB --message-bytes 1MiB --against " + file("bad.csv", "0F0\n"), "--against", 2},
	} {
		stdout, stderr, status := weir("", append([]string{"check", exchange}, strings.Fields(test.flags)...)...)
		require.Equal(t, test.status, status, "%s: %s%s", test.flags, stdout, stderr)
		require.Contains(t, stdout+stderr, test.want, test.flags)
	}
	computations := file("computations.csv", "0F0,0B0\n1F0,1B0\n")
	for _, flags := range []string{computations + " --link-bytes 1MiB --message-bytes 1MiB", computations + " --against " + exchange, exchange + " --against " + computations} {
		_, stderr, status := weir("", append([]string{"check"}, strings.Fields(flags)...)...)
		require.Equal(t, 2, status, flags)
		require.Contains(t, stderr, "weir convert adds transfers", flags)
	}
	stdout, _, status := weir("", "check", "1f1b", "--against", "gpipe")
	require.Equal(t, 1, status)
	require.Contains(t, stdout, "worse: link from rank 0 to rank 1, outputs: 0 messages -> 1 message\n")

	o := decoded[outcome](t, atFault, "", "check", exchange, "--link-bytes", "64MiB", "--message-bytes", "65MiB", "--against", ordered, "--json")
	require.False(t, o.Valid)
	require.EqualValues(t, 65<<20, *o.LeastBytes)
	require.Len(t, o.Faults, 2)
	link := check.LinkCapacity{From: 0, To: 1, Outputs: true, Capacity: 65 << 20}
	require.Equal(t, worseLink{link, 0}, o.Against.Worse[0])
}
