// Bench measures a training step on the host: tokens per second, memory, and where
// the time goes, for models of the GPT-2 layout in float32 with AdamW. A step has
// four sequences, each a microbatch. The text is random, which changes nothing.
//
//	go run ./tests/bench                      all configurations, one and two threads
//	go run ./tests/bench -only g4,4k -profile those whose name has both parts
//	go run ./tests/bench -products            matrix products alone
//	go run ./tests/bench -all                 all in turns with PyTorch and OpenBLAS, as Markdown
//	go run ./tests/bench -all -short          a part of it
//
// Every line of a table is a process of its own, so that its memory is its own. peers.sh,
// beside this file, sets up what -all measures beside.
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
	list     bool
	json     bool

	instructions string
	child        string // the name of the one configuration or product that this process measures
}

// clock returns what times are taken by.
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
	flag.StringVar(&o.only, "only", "", "measure configurations whose name has all of these parts, such as g4,4k,T64")
	flag.StringVar(&o.threads, "threads", "1,2", "numbers of threads")
	flag.DurationVar(&o.time, "time", 5*time.Second, "time to measure each for, at least three steps")
	flag.BoolVar(&o.cpu, "cpu", false, "take the time that the process computes for instead of the clock's: for one thread on a busy machine")
	flag.BoolVar(&o.profile, "profile", false, "say where the time of a step goes")
	flag.BoolVar(&o.products, "products", false, "measure matrix products, not steps")
	flag.Int64Var(&o.keep, "keep-logits", 0, "most bytes of logits that a microbatch keeps for its backward; -1: none, 0: all or none, as transformer.Model.Record chooses")
	flag.StringVar(&o.instructions, "instructions", "best", "best, avx512, avx2, neon or portable, which is plain Go")
	flag.BoolVar(&o.all, "all", false, "measure steps and products in turns with PyTorch and OpenBLAS; -products and -only choose some of it")
	flag.BoolVar(&o.short, "short", false, "with -all, fewer lines, and shorter turns")
	flag.StringVar(&o.peers, "peers", "/opt/trixie", "folder that peers.sh has set up; \"\" is this machine itself")
	flag.BoolVar(&o.list, "list", false, "write what would be measured as JSON, and end")
	flag.BoolVar(&o.json, "json", false, "write JSON lines")
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
	switch {
	case o.list:
		return json.NewEncoder(out).Encode(chosen)
	case o.child != "":
		i := slices.IndexFunc(chosen, func(s subject) bool { return s.Name == o.child })
		if i < 0 {
			return fmt.Errorf("-child %s: there is no such configuration", o.child)
		}
		m, err := chosen[i].measure(threads[0], o)
		return errors.Join(err, json.NewEncoder(out).Encode(m))
	}
	if o.all {
		return all(o, threads, out)
	}
	t := table{out: out, plain: o.json}
	for _, s := range chosen {
		for _, n := range threads {
			m, err := s.measureApart(n, o)
			if err != nil {
				return err
			}
			t.add(m)
		}
	}
	return t.err
}
