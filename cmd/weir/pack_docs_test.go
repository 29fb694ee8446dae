package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule/pack"
)

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
