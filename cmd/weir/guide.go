package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// examples lists the lines with which the help of each command begins. They can be run one after another in the
// root folder of a clone of the repository.
var examples = []struct{ command, lines string }{
	{"plan", "weir plan zb-v --ranks 4 --to plan -o plan.json"},
	{"check", "weir check plan.json\nweir check zb-v --ranks 4 --microbatches 1e6\nweir check zb-v --link-bytes 64MiB --config docs/fit/llama-3-8b.json --seq 8192 --against 1f1b"},
	{"sim", "weir sim zb-v --ranks 4 --latency 0.1"},
	{"choose", "weir choose --ranks 4 --microbatches 16 --latency 0.1 --cap 4\nweir choose --ranks 4 --microbatches 16 --cap 4 --runtime pytorch -o best.json"},
	{"draw", "weir draw zb-v --ranks 4 -o zb-v.svg"},
	{"convert", "weir convert plan.json --to compute -o plan.csv"},
	{"place", "weir place docs/placement/pinwheel.csv"},
	{"slots", "weir slots zb-v --ranks 4 --runtime pytorch\nweir slots dualpipev --ranks 4 --runtime pytorch --against zb-v"},
	{"mem log", "weir mem log docs/memory-log/planned.jsonl --html memory.html"},
	{"mem plan", "weir mem plan 1f1b --ranks 2 --microbatches 4096 --profile docs/placement/profile.json --what-if"},
	{"mem diff", "weir mem diff docs/memory-log/plain.jsonl docs/memory-log/kept-loss.jsonl"},
	{"mem export", "weir mem export 1f1b --ranks 2 --profile docs/placement/profile.json -o step.csv"},
	{"mem leaks", "weir mem leaks docs/snapshots/kept-loss.pickle"},
	{"pack", "weir pack docs/pack/lengths.txt --ranks 8 --replicas 2 --memory 80GiB --config docs/fit/llama-3-8b.json"},
	{"fit", "weir fit docs/fit/llama-3-8b.json --ranks 8 --microbatches 32 --seq 8192 --memory 80GiB\nweir fit docs/profile/llama-profile.json --ranks 8 --seq 8192 --memory 80GiB"},
	{"hang", "weir hang docs/hang/dumps.tar.gz"},
	{"trace", "weir trace docs/trace -o trace.html"},
	{"launch run", "weir launch run -n 2 -- go run ./examples/train -ranks 2"},
	{"launch certs", "weir launch certs certs host1 host2"},
	{"status", "weir status"},
	{"serve", "weir serve"},
	{"checkpoint verify", "weir checkpoint verify run/checkpoints"},
	{"help", "weir help mem leaks\nweir help ErrLeak"},
	{"completion", "source <(weir completion bash)"},
}

// printHelp prints the help of a command with its examples first.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if command := ctx.Selected(); command != nil {
		command.Detail = withExamples(command)
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// withExamples returns the text below the usage of a command, with its examples first.
func withExamples(command *kong.Node) string {
	for _, example := range examples {
		if strings.TrimPrefix(command.Path(), "weir ") == example.command {
			return "For example:\n\n\t" + strings.ReplaceAll(example.lines, "\n", "\n\t") + "\n\n" + command.Detail
		}
	}
	return command.Detail
}

// wholeNumbers decodes numbers for flags of integers. The numbers may have underscores, and an exponent: 1_000_000
// and 1e6.
type wholeNumbers struct{}

// Decode sets target, which is an int or an int64.
func (wholeNumbers) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("number", &text); err != nil {
		return err
	}
	number, err := strconv.ParseInt(text, 0, target.Type().Bits())
	if err != nil {
		exact, fault := strconv.ParseFloat(text, 64)
		if fault != nil || exact != math.Trunc(exact) || strings.ContainsAny(text, "xXpP.") {
			return fmt.Errorf("expected a whole number, such as 16 or 1e6, but got %q", text)
		}
		if math.Abs(exact) > 1<<53 {
			return fmt.Errorf("%s is too large", text)
		}
		number = int64(exact)
	}
	if target.OverflowInt(number) {
		return fmt.Errorf("%s is too large", text)
	}
	target.SetInt(number)
	return nil
}

// commandFor guesses from the name and the first bytes of a file which command reads it. It returns "" if the
// file cannot be read or is empty.
func commandFor(name string) string {
	file, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	head := make([]byte, 64<<10)
	n, err := io.ReadFull(file, head)
	if err != nil && n == 0 {
		return "" // a folder, or nothing
	}
	head = head[:n]
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(head, []byte(word)) })
	}
	command := "check NAME"
	switch {
	case slices.Contains([]string{".tar", ".tgz"}, filepath.Ext(strings.TrimSuffix(name, ".gz"))) || has("pg_config", "nccl_version", "collective_seq_id"):
		command = "hang NAME"
	case filepath.Ext(name) == ".gz" || has(`"traceEvents"`, `"resourceSpans"`):
		command = "trace NAME"
	case slices.Contains([]string{".pickle", ".pkl"}, filepath.Ext(name)) || has("device_traces"):
		command = "mem leaks NAME"
	case filepath.Ext(name) == ".jsonl":
		command = "mem log NAME"
	case has(`"hidden_size"`, `"num_hidden_layers"`, `"n_layer"`, "--num-layers", `"weir model profile"`):
		command = "fit NAME --ranks 4 --seq 4096 --memory 80GiB"
	case has("lower,upper"):
		command = "place NAME"
	}
	return "weir " + strings.ReplaceAll(command, "NAME", name)
}

// idleFlag returns an error for a flag that has no effect because none of the flags in its tag "needs" is
// given, or because one of the flags in its tag "unless" is given.
func idleFlag(ctx *kong.Context) error {
	given := map[string]bool{}
	for _, part := range ctx.Path {
		if part.Flag != nil {
			given[part.Flag.Name] = true
		}
	}
	for _, part := range ctx.Path {
		if part.Flag == nil {
			continue
		}
		needs := strings.Fields(part.Flag.Tag.Get("needs"))
		if len(needs) > 0 && !slices.ContainsFunc(needs, func(name string) bool { return given[name] }) {
			return usage("--%s has no effect without --%s: give it, or leave out --%[1]s", part.Flag.Name, strings.Join(needs, " or --"))
		}
		for _, other := range strings.Fields(part.Flag.Tag.Get("unless")) {
			if given[other] {
				return usage("--%s has no effect with --%s: leave out one of them", part.Flag.Name, other)
			}
		}
	}
	return nil
}
