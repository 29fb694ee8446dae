package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule/pack"
)

// runPack runs weir pack with the batches as its input, and returns what it prints for each as JSON.
func runPack(t *testing.T, batches string, flags ...string) (status int, list []packed) {
	var out, fault bytes.Buffer
	status = run(append([]string{"pack", "-", "--ranks", "4", "--json"}, flags...), strings.NewReader(batches), &out, &fault)
	require.NotEqual(t, misused, status, fault.String())
	for d := json.NewDecoder(&out); d.More(); {
		var one packed
		require.NoError(t, d.Decode(&one))
		list = append(list, one)
	}
	return status, list
}

// Each line is a batch. A batch with a sequence that is too long is refused, and the others are packed.
func TestPackStream(t *testing.T) {
	costs, _ := lengthFiles(t, nil, 0)
	status, list := runPack(t, "300 4000 2000, 100\n\n1500 9000 700\n5 5 5 5 5 # the last one is small\n", "--costs", costs, "--tokens", "4096", "--replicas", "2")
	require.Equal(t, atFault, status)
	require.Len(t, list, 3)
	for i, sequences := range [][]int64{{300, 4000, 2000, 100}, nil, {5, 5, 5, 5, 5}} {
		one := list[i]
		require.Equal(t, i, one.Batch)
		if sequences == nil {
			require.Equal(t, 1, *one.Refused.Sequence)
			require.EqualValues(t, 4096, one.Refused.Longest)
			require.EqualValues(t, 9000-4096, one.Refused.Excess)
			require.Nil(t, one.Refused.Rank)
			require.Empty(t, one.Packs)
			continue
		}
		require.Nil(t, one.Refused)
		require.Len(t, one.Packs, 2)
		require.Len(t, one.Peaks[0], 4)
		require.GreaterOrEqual(t, one.Makespan, one.Bound)
		require.Len(t, one.Others, 3)
		all := slices.Concat(slices.Concat(one.Packs...)...)
		slices.Sort(all)
		require.Len(t, all, len(sequences))
	}
	status, list = runPack(t, "100 200\n", "--costs", costs, "--memory", "1KiB")
	require.Equal(t, atFault, status)
	require.NotNil(t, list[0].Refused.Rank)
	require.Contains(t, list[0].Refused.Text, "no sequence fits")
}

// Sequences that are too long are split or cut if a flag says so.
func TestPackPieces(t *testing.T) {
	costs, _ := lengthFiles(t, nil, 0)
	flags := []string{"--costs", costs, "--tokens", "4096"}
	_, list := runPack(t, "300 9000\n", append(flags, "--long", "split")...)
	require.Equal(t, []piece{{0, 0, 300}, {1, 0, 4096}, {1, 4096, 4096}, {1, 8192, 808}}, list[0].Pieces)
	_, list = runPack(t, "300 9000\n", append(flags, "--long", "cut", "--at", "1000")...)
	require.Equal(t, []piece{{0, 0, 300}, {1, 0, 1000}}, list[0].Pieces)
	_, list = runPack(t, "300 900\n", append(flags, "--long", "cut")...)
	require.Nil(t, list[0].Pieces)
}

// The page compares the command's packing with packing in order.
func TestPackPage(t *testing.T) {
	costs, _ := lengthFiles(t, nil, 0)
	page := filepath.Join(t.TempDir(), "page.html")
	runPack(t, "300 4000 2000 100 4000 50\n", "--costs", costs, "--tokens", "4096", "-o", page)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "in order: makespan")
	require.Contains(t, string(text), "packed: makespan")
}

func TestPackFaults(t *testing.T) {
	costs, _ := lengthFiles(t, nil, 0)
	for want, flags := range map[string][]string{
		"give either --costs or --config":      {"--tokens", "5"},
		"give --memory, the bytes of a rank":   {"--costs", costs},
		"--at 5: give a length":                {"--costs", costs, "--tokens", "5", "--at", "5"},
		"--stages -1":                          {"--costs", costs, "--tokens", "5", "--stages", "-1"},
		"there is no schedule":                 {"--costs", costs, "--tokens", "5", "--schedule", "no"},
		"-2 replicas":                          {"--costs", costs, "--tokens", "5", "--replicas", "-2"},
		"joined pairs":                         {"--costs", costs, "--tokens", "5", "--schedule", "dualpipev"},
		"give a number above 0":                {"--costs", costs, "--tokens", "5", "--teraflops", "0"},
		"--teraflops is for a profile":         {"--costs", costs, "--tokens", "5", "--teraflops", "200"},
		"--layers is for a profile":            {"--costs", costs, "--tokens", "5", "--layers", "1,1,1,1"},
		"32 layers do not suffice":             {"--config", "../../docs/fit/llama-3-8b.json", "--tokens", "5", "--stages", "40", "--schedule", "interleaved"},
		"links for 0 messages":                 {"--costs", costs, "--tokens", "5", "--capacity", "0"},
		"<stdin>:1:1: found \"x\", expected a": {"--costs", costs, "--tokens", "5"},
	} {
		_, stderr, status := weir("x", append([]string{"pack", "-", "--ranks", "4"}, flags...)...)
		require.NotZero(t, status, want)
		require.Contains(t, stderr, want)
	}
}

// TestPackPictures packs the sequences of docs/pack/small.txt in order and with weir pack, writes the
// lengths of each microbatch, and draws both steps. -update rewrites the files in docs/pack.
func TestPackPictures(t *testing.T) {
	t.Chdir("../../docs/pack")
	c := &packCmd{Ranks: 4, Schedule: "1f1b", Capacity: 1, Tokens: 4096, Costs: "costs.json", Long: "refuse", Teraflops: 400, LinkRate: 50e9}
	cfg, err := c.config(nil)
	require.NoError(t, err)
	packer, err := pack.New(*cfg)
	require.NoError(t, err)
	lists, err := lengthsFile("small.txt")
	require.NoError(t, err)
	packed, err := packer.Pack(lists[0])
	require.NoError(t, err)
	before, err := packer.Other(pack.InOrder, lists[0])
	require.NoError(t, err)
	for name, p := range map[string]*pack.Packing{"in-order": before, "packed": packed} {
		var text strings.Builder
		for _, sequences := range p.Replicas[0].Packs {
			for n, i := range sequences {
				fmt.Fprint(&text, strings.Repeat(" ", min(n, 1)), lists[0][i])
			}
			text.WriteString("\n")
		}
		require.NoError(t, compareOrUpdate(name+".txt", []byte(text.String())))
		var svg, fault bytes.Buffer
		require.Zero(t, run([]string{"draw", "1f1b", "--ranks", "4", "--capacity", "1", "--costs", "costs.json", "--lengths", name + ".txt"}, nil, &svg, &fault), fault.String())
		require.NoError(t, compareOrUpdate(name+".svg", svg.Bytes()))
	}
}

// compareOrUpdate compares a file with its contents, or writes it if -update is given.
func compareOrUpdate(name string, want []byte) error {
	if *testkit.Update {
		return os.WriteFile(name, want, 0o644)
	}
	got, err := os.ReadFile(name)
	if err == nil && !bytes.Equal(got, want) {
		return fmt.Errorf("%s is out of date: run the test with -update", name)
	}
	return err
}
