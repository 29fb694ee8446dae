package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/terminal"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program: it returns 0, 1 for an error, and 2 for wrong use.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stderr = terminal.Writer(stderr)
	flags := flag.NewFlagSet("leaks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	microbatches := flags.Int("microbatches", 0, "microbatches of the step; 128, or 64 with -refit")
	asJSON := flags.Bool("json", false, "print what was measured as JSON")
	folder := flags.String("log", "", "`folder` to write a memory log of each run to, for weir mem")
	lend := flags.Bool("refit", false, "lend the memory of FP8 training out between steps, and compare the ways to do it")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if !given(flags, "microbatches") {
		*microbatches = 128
		if *lend {
			*microbatches = lendSize.microbatches
		}
	}
	if *microbatches < 1 || *microbatches > maxMicrobatches || flags.NArg() > 0 {
		fmt.Fprintf(stderr, "leaks: give -microbatches from 1 to %d, and no arguments but flags\n", maxMicrobatches)
		return 2
	}
	if *lend && *folder != "" {
		fmt.Fprintln(stderr, "leaks: -refit writes no logs: leave -log out")
		return 2
	}
	var err error
	if *lend {
		size := lendSize
		size.microbatches = *microbatches
		err = printLending(ctx, &size, *asJSON, stdout)
	} else {
		err = printGuards(ctx, *microbatches, *folder, *asJSON, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "leaks:", err)
		return 1
	}
	return 0
}

// given reports whether a flag is on the command line.
func given(flags *flag.FlagSet, name string) (there bool) {
	flags.Visit(func(f *flag.Flag) { there = there || f.Name == name })
	return there
}

// printLending measures the methods of lending memory and prints the result.
func printLending(ctx context.Context, t *trainee, asJSON bool, w io.Writer) error {
	all, err := t.lending(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, all)
	}
	return t.lendingTable(w, all)
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// maxMicrobatches keeps the size of the leaks below the capacity of an arena.
const maxMicrobatches = 16384

// printGuards measures every guard and prints the result.
func printGuards(ctx context.Context, microbatches int, folder string, asJSON bool, w io.Writer) error {
	if folder != "" {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	var all []measured
	for removed := range guards {
		m, err := measure(ctx, removed, microbatches, folder)
		if err != nil {
			return fmt.Errorf("%s: %w", guards[removed].Name, err)
		}
		all = append(all, m)
	}
	if asJSON {
		return printJSON(w, all)
	}
	return table(w, all)
}

// table prints the guards, before and after, as in the original threads.
func table(w io.Writer, all []measured) error {
	plain := all[nothing]
	fmt.Fprintf(w, "A step of %d microbatches of %d tokens, width %d. Growth is for each microbatch:\n\n", plain.Microbatches, size.Context, size.Width)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "guard\tgrowth without\twith\tpeak without\twith\treported on\tpublished")
	for _, m := range all[1:] {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\tmicrobatch %s\t%s\n", m.Guard, units.Size(m.Growth), units.Size(plain.Growth),
			units.Size(m.Peak), units.Size(plain.Peak), reported(m.Reported), m.Published)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range all[1:] {
		fmt.Fprintf(w, "\n%s: the step ends with\n  %s\nand takes back what it had: %s live before it, %s after.\n",
			m.Name, m.Error, units.Size(m.LiveBefore), units.Size(m.LiveAfterError))
		if m.DryRun != "" {
			fmt.Fprintf(w, "The dry run says it before the first step:\n  %s\n", m.DryRun)
		}
		if m.Log != "" {
			fmt.Fprintf(w, "go run ./cmd/weir mem log %s\n", terminal.Quote(m.Log))
		}
	}
	return nil
}

func reported(microbatch *int) string {
	if microbatch == nil {
		return "-"
	}
	return strconv.Itoa(*microbatch)
}
