// Bench measures a training step on the host: tokens per second, memory, and where
// the time goes, for models of the GPT-2 layout in float32 with AdamW. A step has
// four sequences, each a microbatch. The text is random, which changes nothing.
//
//	go run ./examples/bench                      all configurations, one and two threads
//	go run ./examples/bench -only g4,4k -profile those whose name has both parts
//
// Every line of the table is a process of its own, so that its memory is its own.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	only    string
	threads string
	time    time.Duration
	cpu     bool
	profile bool
	json    bool
	child   string // the name of the one configuration that this process measures
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure configurations whose name has all of these parts, such as g4,4k,T64")
	flag.StringVar(&o.threads, "threads", "1,2", "numbers of threads")
	flag.DurationVar(&o.time, "time", 5*time.Second, "time to measure each for, at least three steps")
	flag.BoolVar(&o.cpu, "cpu", false, "take the time that the process computes for instead of the clock's: for one thread on a busy machine")
	flag.BoolVar(&o.profile, "profile", false, "say where the time of a step goes")
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
	if o.child != "" {
		for _, c := range configurations {
			if c.name() == o.child {
				m, err := measure(c, threads[0], o)
				return errors.Join(err, json.NewEncoder(out).Encode(m))
			}
		}
		return fmt.Errorf("-child %s: there is no such configuration", o.child)
	}
	t := table{out: out, plain: o.json}
	for _, c := range configurations {
		if !c.matches(o.only) {
			continue
		}
		for _, n := range threads {
			m, err := measureApart(c, n, o)
			if err != nil {
				return err
			}
			t.add(m)
		}
	}
	return t.err
}

// measureApart measures in another process.
func measureApart(c configuration, threads int, o options) (m measurement, err error) {
	program, err := os.Executable()
	if err != nil {
		return m, err
	}
	child := exec.Command(program, "-child", c.name(), "-threads", strconv.Itoa(threads),
		"-time", o.time.String(), "-cpu="+strconv.FormatBool(o.cpu), "-profile="+strconv.FormatBool(o.profile))
	child.Stderr = os.Stderr
	text, err := child.Output()
	if err != nil {
		return m, fmt.Errorf("%s: %w", c.name(), err)
	}
	return m, json.Unmarshal(text, &m)
}
