// Bench measures a training step on the host: tokens per second, memory, and a profile, for
// models of the GPT-2 layout in float32 with AdamW. A step has four sequences, each a
// microbatch. The text is random, which does not affect the speed.
//
//	go run ./tests/bench                      all configurations, one and two threads
//	go run ./tests/bench -only g4,4k -profile configurations whose name contains both parts
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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-ml/weir/kernels"
)

// options are the flags.
type options struct {
	only     string
	threads  string
	time     time.Duration
	cpu      bool
	profile  bool
	products bool
	all      bool
	short    bool
	peers    string
	keep     int64

	instructions string
	child        string // the name of the only configuration or product that this process measures
}

// clock returns the clock for measurements.
func (o options) clock() clock {
	if o.cpu {
		return processorTime
	}
	return wallTime
}

// host returns the device.
func (o options) host(threads int) (*kernels.Host, error) {
	for i := kernels.BestInstructions; i <= kernels.NEON; i++ {
		if i.String() == o.instructions || o.instructions == "" {
			return kernels.NewHost(kernels.HostConfig{Threads: threads, Instructions: i})
		}
	}
	return nil, fmt.Errorf("-instructions %s: want best, avx512, avx2, neon or portable", o.instructions)
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure configurations whose name contains all of these parts, such as g4,4k,T64")
	flag.StringVar(&o.threads, "threads", "1,2", "numbers of threads")
	flag.DurationVar(&o.time, "time", 5*time.Second, "measuring time for each, at least three steps")
	flag.BoolVar(&o.cpu, "cpu", false, "measure processor time instead of wall-clock time: for one thread on a busy machine")
	flag.BoolVar(&o.profile, "profile", false, "print a profile of a step")
	flag.BoolVar(&o.products, "products", false, "measure matrix products, not steps")
	flag.Int64Var(&o.keep, "keep-logits", 0, "maximum bytes of logits that a microbatch keeps for its backward; -1: none, 0: all or none, as transformer.Model.Record chooses")
	flag.StringVar(&o.instructions, "instructions", "best", "best, avx512, avx2, neon or portable, which is plain Go")
	flag.BoolVar(&o.all, "all", false, "measure steps and products, alternating with PyTorch and OpenBLAS; -products and -only select a part")
	flag.BoolVar(&o.short, "short", false, "with -all, fewer lines, and shorter turns")
	flag.StringVar(&o.peers, "peers", "/opt/trixie", "folder that peers.sh has set up; \"\" means this machine itself")
	flag.StringVar(&o.child, "child", "", "measure this one in this process")
	flag.Parse()
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options, out io.Writer) error {
	var threads []int
	for _, text := range strings.Split(o.threads, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-threads %s: want numbers of at least 1 with commas between", o.threads)
		}
		threads = append(threads, n)
	}
	chosen := o.subjects()
	if o.child != "" {
		i := slices.IndexFunc(chosen, func(s subject) bool { return s.Name == o.child })
		if i < 0 {
			return fmt.Errorf("-child %s: no such configuration", o.child)
		}
		m, err := chosen[i].measure(threads[0], o)
		return errors.Join(err, json.NewEncoder(out).Encode(m))
	}
	if o.all {
		return all(o, threads, out)
	}
	t := table{out: out}
	for _, s := range chosen {
		for _, n := range threads {
			m, err := s.measureApart(n, o)
			if err == nil {
				err = t.add(m)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
