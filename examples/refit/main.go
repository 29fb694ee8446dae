package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/terminal"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program: it returns 0, 1 for an error, and 2 for wrong use.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stderr = terminal.Writer(stderr)
	flags := flag.NewFlagSet("refit", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 80, "number of rounds of training and generation")
	trained := flags.String("fp8", "delayed", "`recipe` to train in: none, delayed, current, mxfp8")
	as := flags.String("as", "float32", "`form` in which weights are handed over: float32, block, mxfp8, nvfp4")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	recipe, found := recipes[*trained]
	encoding, known := encodings[*as]
	if *rounds < 1 || !found || !known || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "refit: give at least one round, -fp8 none, delayed, current or mxfp8, -as float32, block, mxfp8 or nvfp4, and no arguments but flags")
		return 2
	}
	if err := loop(ctx, *rounds, recipe, encoding, stdout); err != nil {
		fmt.Fprintln(stderr, "refit:", err)
		return 1
	}
	return 0
}

// recipes are the values of the flag -fp8.
var recipes = map[string]fp8.Recipe{
	"none":    nil,
	"delayed": fp8.DelayedScaling{Format: fp8.Hybrid},
	"current": fp8.CurrentScaling{Format: fp8.Hybrid},
	"mxfp8":   fp8.MXFP8{},
}

// encodings are the values of the flag -as.
var encodings = map[string]*kernels.Encoding{
	"float32": nil,
	"block":   {Format: kernels.E4M3, Scaling: kernels.Tiles128},
	"mxfp8":   {Format: kernels.E4M3, Scaling: kernels.MX32},
	"nvfp4":   {Format: kernels.E2M1, Scaling: kernels.NV16},
}

// loop trains and generates alternately, and compares the weights with those of a trainer that
// does not lend its memory.
func loop(ctx context.Context, rounds int, recipe fp8.Recipe, encoding *kernels.Encoding, w io.Writer) (err error) {
	lending, err := newTrainer(recipe)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lending.close()) }()
	keeping, err := newTrainer(recipe)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeping.close()) }()

	for round := range rounds {
		if _, err := keeping.step(ctx); err != nil {
			return err
		}
		loss, err := lending.step(ctx)
		if err != nil {
			return err
		}
		out, err := refit(lending, encoding)
		if err != nil {
			return err
		}
		if every := max(1, rounds/8); round%every == every-1 {
			fmt.Fprintf(w, "round %2d  loss %.3f  %d weights in %s; then %s live, %s reserved, %s in the file; generated: %q\n",
				round+1, loss, out.weights, units.Size(out.handed), units.Size(out.left.live), units.Size(out.left.reserved), units.Size(out.file), out.text)
		}
	}
	return compare(lending, keeping, w)
}

// outcome is the result of a refit. Sizes are in bytes.
type outcome struct {
	weights int
	handed  int64
	file    int64
	left    remaining // the trainer's memory during generation
	text    string
}

// refit passes the weights on, lends the memory, generates, and restores the memory.
func refit(t *trainer, encoding *kernels.Encoding) (out outcome, err error) {
	g, err := newGenerator()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, g.dev.Close()) }()
	for weight, err := range t.weights(encoding) {
		if err != nil {
			return out, err
		}
		if err := g.receive(weight); err != nil {
			return out, err
		}
		out.weights++
	}
	var file bytes.Buffer // or a file, or the memory of another machine
	if out.left, err = t.lend(&file); err != nil {
		return out, err
	}
	out.handed, out.file = g.received, int64(file.Len())
	if out.text, err = g.text("the water", 14); err != nil {
		return out, err
	}
	return out, t.model.Restore(&file)
}

// compare returns an error unless two trainers have the same weights, and prints their hash.
func compare(a, b *trainer, w io.Writer) error {
	first, err := a.model.SHA256()
	if err != nil {
		return err
	}
	second, err := b.model.SHA256()
	if err != nil {
		return err
	}
	if first != second {
		return fmt.Errorf("the weights are %s, expected %s as without lending: this is a bug in the library", first, second)
	}
	fmt.Fprintf(w, "\nweights sha256 %s, the same as of a trainer that kept its memory\n", first)
	return nil
}
