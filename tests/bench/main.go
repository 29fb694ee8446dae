// Bench measures a training step on the host: tokens per second, memory, and where
// the time goes, for models of the GPT-2 layout in float32 with AdamW. A step has
// four sequences, each a microbatch. The text is random, which changes nothing.
//
//	go run ./tests/bench                      all configurations, one and two threads
//	go run ./tests/bench -only g4,4k -profile those whose name has both parts
//	go run ./tests/bench -products            matrix products alone
//	go run ./tests/bench -products -openblas /usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0
//	                                             in turns with OpenBLAS (needs a C compiler)
//
// Every line of the table is a process of its own, so that its memory is its own.
// peer.py, beside this file, measures PyTorch in turns with it.
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
)

// options are the flags.
type options struct {
	only     string
	threads  string
	time     time.Duration
	cpu      bool
	profile  bool
	products bool
	openblas string
	list     bool
	json     bool
	child    string // the name of the one configuration or product that this process measures
}

// clock returns what times are taken by.
func (o options) clock() clock {
	if o.cpu {
		return processorTime
	}
	return wallTime
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure configurations whose name has all of these parts, such as g4,4k,T64")
	flag.StringVar(&o.threads, "threads", "1,2", "numbers of threads")
	flag.DurationVar(&o.time, "time", 5*time.Second, "time to measure each for, at least three steps")
	flag.BoolVar(&o.cpu, "cpu", false, "take the time that the process computes for instead of the clock's: for one thread on a busy machine")
	flag.BoolVar(&o.profile, "profile", false, "say where the time of a step goes")
	flag.BoolVar(&o.products, "products", false, "measure matrix products, not steps")
	flag.StringVar(&o.openblas, "openblas", "", "path of a libopenblas.so.0 to measure products of, in turns with -products")
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
	var beside *rival
	if o.openblas != "" && o.products {
		var err error
		if beside, err = newRival(o.openblas); err != nil {
			return err
		}
		defer beside.Close()
	}
	t := table{out: out, plain: o.json}
	for _, s := range chosen {
		for _, n := range threads {
			m, err := beside.measure(s, n, o)
			if err != nil {
				return err
			}
			t.add(m)
		}
	}
	return t.err
}
