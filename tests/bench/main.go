// Bench measures a training step on the host: tokens per second and memory, for models of the
// GPT-2 layout in float32 with AdamW. A step has four sequences, each a microbatch. The text is
// random, which does not affect the speed.
//
//	go run ./tests/bench                      all configurations, one and two threads
//	go run ./tests/bench -only g4,4k          configurations whose name contains both parts
//	go run ./tests/bench -profile DIR         also CPU profiles, for go tool pprof
//	go run ./tests/bench -products            matrix products only
//	go run ./tests/bench -all                 everything, alternating with PyTorch and OpenBLAS, as Markdown
//	go run ./tests/bench -all -short          a part of it
//
// Every line of a table is measured in a separate process, so that memory is measured
// separately. peers.sh, in this directory, sets up the peers of -all.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	only     string
	threads  string
	time     time.Duration
	products bool
	all      bool
	short    bool
	peers    string
	job             // the settings of every job
	child    string // a job in JSON, which this process runs
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure configurations whose name contains all of these parts, such as g4,4k,T64")
	flag.StringVar(&o.threads, "threads", "1,2", "numbers of threads")
	flag.DurationVar(&o.time, "time", 5*time.Second, "measuring time for each, at least three steps")
	flag.BoolVar(&o.CPU, "cpu", false, "measure processor time instead of wall-clock time: for one thread on a busy machine")
	flag.StringVar(&o.Profile, "profile", "", "`folder` for a CPU profile of each measurement")
	flag.BoolVar(&o.products, "products", false, "measure matrix products, not steps")
	flag.Int64Var(&o.KeepLogits, "keep-logits", 0, "maximum bytes of logits that a microbatch keeps for its backward; -1: none, 0: all or none, as transformer.Model.Record chooses")
	flag.IntVar(&o.Microbatches, "microbatches", batch, "number of microbatches of a step; with 1, the four sequences are one that is four times as long")
	flag.StringVar(&o.Instructions, "instructions", "best", "best, avx512, avx2, neon or portable, which is plain Go")
	flag.BoolVar(&o.all, "all", false, "measure steps and products, alternating with PyTorch and OpenBLAS; -products and -only select a part")
	flag.BoolVar(&o.short, "short", false, "with -all, fewer lines, and shorter turns")
	flag.StringVar(&o.peers, "peers", "/opt/weir-peers", "folder that peers.sh has set up")
	flag.StringVar(&o.child, "child", "", "run this job in this process")
	flag.Parse()
	if err := bench(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(o options, out io.Writer) error {
	if o.child != "" {
		var j job
		err := json.Unmarshal([]byte(o.child), &j)
		if err != nil {
			return fmt.Errorf("-child: %w", err)
		}
		m, err := j.measure()
		return errors.Join(err, json.NewEncoder(out).Encode(m))
	}
	if o.Microbatches < 1 || batch%o.Microbatches != 0 {
		return fmt.Errorf("-microbatches %d: want 1, 2 or 4", o.Microbatches)
	}
	var threads []int
	for _, text := range strings.Split(o.threads, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-threads %s: want numbers of at least 1 with commas between", o.threads)
		}
		threads = append(threads, n)
	}
	if o.all {
		return all(o, threads, out)
	}
	subjects, print := steps(o.only), printStep
	if o.products {
		subjects, print = products(), printProduct
	}
	o.Time = o.time.Seconds()
	for i, s := range subjects {
		for k, n := range threads {
			m, err := o.job.of(s, n).measureApart()
			if err != nil {
				return err
			}
			if err := print(out, m, i+k == 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// The tables begin with a heading and get a line when a measurement arrives.

func printProduct(out io.Writer, m measurement, heading bool) error {
	if heading {
		fmt.Fprintf(out, "%-18s %7s %9s %8s %9s %8s\n", "product", "threads", "GFLOP/s", "of peak", "median", "of peak")
	}
	share := 100 / m.Peak
	_, err := fmt.Fprintf(out, "%-18s %7d %9.1f %7.0f%% %9.1f %7.0f%%\n", m.Name, m.Threads, m.Best, share*m.Best, m.Median, share*m.Median)
	return err
}

func printStep(out io.Writer, m measurement, heading bool) error {
	if heading {
		fmt.Fprintf(out, "%-12s %7s %10s %10s %10s %12s %9s %8s\n",
			"model", "threads", "tokens/s", "median", "arena MiB", "resident MiB", "GFLOP/s", "of peak")
	}
	_, err := fmt.Fprintf(out, "%-12s %7d %10.0f %10.0f %10.1f %12.1f %9.1f %7.0f%%\n", m.Name, m.Threads, m.Best, m.Median,
		m.Arena/(1<<20), mib(m), m.Rate, 100*m.Rate/m.Peak)
	return err
}
