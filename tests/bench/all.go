package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// rounds is the number of rounds of measurements.
const rounds = 3

// comparison measures Weir and its peers in alternation, each in a separate process, and prints
// Markdown. A ratio is the median of the ratios of measurements that are adjacent in time.
type comparison struct {
	peers   *peers
	options options
	out     io.Writer
}

// all measures all tables, or only those selected by -products or -only.
func all(o options, threads []int, out io.Writer) (err error) {
	p, err := newPeers(o.peers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	turn := o.time / 2
	if o.short {
		turn /= 2
	}
	o.Time = turn.Seconds()
	c := &comparison{p, o, out}
	host, err := o.host()
	if err != nil {
		return err
	}
	set := host.Instructions()
	if err := host.Close(); err != nil {
		return err
	}
	clock := "the clock"
	if o.CPU {
		clock = "processor time"
	}
	fmt.Fprintf(out, "%d × %s, %s, %s %s/%s, %s; medians of %d turns of %v (products %v) by %s; peak %.0f GFLOP/s a thread; load before %s\n",
		runtime.NumCPU(), processor(), set, runtime.Version(), runtime.GOOS, runtime.GOARCH, time.Now().Format("2006-01-02 15:04"),
		rounds, turn, turn/4, clock, peak(), load())
	if !o.products {
		if err = c.steps(threads); err != nil {
			return err
		}
	}
	if o.only == "" {
		if err = c.products(threads); err != nil {
			return err
		}
	}
	if !o.products && o.only == "" {
		return c.runner()
	}
	return nil
}

// alternate calls each measure once per round. It returns the measurements by measure.
func alternate(measures ...func() (measurement, error)) ([][]measurement, error) {
	all := make([][]measurement, len(measures))
	for range rounds {
		for i, measure := range measures {
			m, err := measure()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], m)
		}
	}
	return all, nil
}

// torch returns the function that measures a step with PyTorch.
func (c *comparison) torch(j job, environment []string) func() (measurement, error) {
	return func() (measurement, error) { return c.peers.torch(j, environment) }
}

// openBLAS returns the function that measures a product with OpenBLAS.
func (c *comparison) openBLAS(j job, core string) func() (measurement, error) {
	return func() (measurement, error) { return c.peers.openBLAS(j, core) }
}

// middle returns the median of one figure over measurements.
func middle(all []measurement, figure func(measurement) float64) float64 {
	x := make([]float64, len(all))
	for i, m := range all {
		x[i] = figure(m)
	}
	slices.Sort(x)
	return x[len(x)/2]
}

// ratio returns the median ratio of adjacent measurements.
func ratio(ours, theirs []measurement, figure func(measurement) float64) float64 {
	x := make([]measurement, len(ours))
	for i := range x {
		x[i].Median = figure(ours[i]) / figure(theirs[i])
	}
	return middle(x, byMedian)
}

func byMedian(m measurement) float64 { return m.Median }
func mib(m measurement) float64      { return m.Resident / (1 << 20) }
func ofPeak(m measurement) float64   { return 100 * m.Median / m.Peak }

// chooseWaiting returns the environment in which PyTorch is fastest: its threads wait passively or
// actively. With one thread it is the passive one.
func (c *comparison) chooseWaiting(threads int) (best []string, err error) {
	j := c.options.of(steps("g4 4k T256")[0], threads).in(1)
	rate := 0.0
	fmt.Fprint(c.out, "\n| PyTorch, "+j.Name+" | threads | which is | tokens/s |\n|---|---|---|---|\n")
	for _, policy := range []string{"PASSIVE", "ACTIVE"}[:min(threads, 2)] {
		environment := []string{"OMP_WAIT_POLICY=" + policy}
		m, err := c.peers.torch(j, environment)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(c.out, "| %s | %d | %s | %.0f |\n", environment[0], threads, m.Name, m.Median)
		if m.Median > rate {
			best, rate = environment, m.Median
		}
	}
	return best, nil
}

// steps measures training steps of Weir and PyTorch. With the best instructions it also measures PyTorch
// with one sequence per microbatch and compiled, and Weir with all sequences in one microbatch. Then it
// measures both with fewer instructions.
func (c *comparison) steps(threads []int) error {
	waiting := make(map[int][]string)
	for _, n := range threads {
		best, err := c.chooseWaiting(n)
		if err != nil {
			return err
		}
		waiting[n] = best
	}
	fmt.Fprint(c.out, "\n| configuration | threads | Weir, tokens/s | MiB | as one microbatch | PyTorch, one batch | MiB | PyTorch, accumulating | PyTorch, compiled | Weir / one batch | Weir / accumulating | Weir / compiled |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range steps(c.options.only) {
		if c.options.short && c.options.only == "" && !slices.Contains(shortSteps, s.Name) {
			continue
		}
		for _, n := range threads {
			j, w := c.options.of(s, n), waiting[n]
			all, err := alternate(j.measureApart, j.in(1).measureApart, c.torch(j.in(1), w), c.torch(j, w), c.torch(j.in(1).compiled(), w))
			if err != nil {
				return err
			}
			ours, one, torch, accumulating, compiled := all[0], all[1], all[2], all[3], all[4]
			fmt.Fprintf(c.out, "| %s | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f | %.2f |\n", s.Name, n,
				middle(ours, byMedian), middle(ours, mib), middle(one, byMedian), middle(torch, byMedian), middle(torch, mib),
				middle(accumulating, byMedian), middle(compiled, byMedian),
				ratio(ours, torch, byMedian), ratio(ours, accumulating, byMedian), ratio(ours, compiled, byMedian))
		}
	}
	fmt.Fprint(c.out, "\n| configuration, one thread | Weir AVX2 | PyTorch AVX2 | Weir : PyTorch | Weir plain Go | Weir AVX-512 |\n|---|---|---|---|---|---|\n")
	avx2 := []string{"ATEN_CPU_CAPABILITY=avx2", "MKL_ENABLE_INSTRUCTIONS=AVX2", "ONEDNN_MAX_CPU_ISA=AVX2"}
	for _, s := range steps("4k") {
		if c.options.only != "" || s.Layers != 4 || c.options.short && s.Sequence > 64 {
			continue
		}
		j := c.options.of(s, 1)
		all, err := alternate(j.with("avx2").measureApart, c.torch(j.in(1), avx2), j.with("portable").measureApart, j.measureApart)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "| %s | %.0f | %.0f | %.2f | %.0f | %.0f |\n", s.Name, middle(all[0], byMedian), middle(all[1], byMedian),
			ratio(all[0], all[1], byMedian), middle(all[2], byMedian), middle(all[3], byMedian))
	}
	return nil
}

// shortSteps lists the steps that -short measures.
var shortSteps = []string{"g4 4k T64", "g4 4k T256", "g6 4k T256", "g4 50k T256"}

// products measures products of Weir and OpenBLAS, with the best instructions and with fewer.
func (c *comparison) products(threads []int) error {
	c.options.Time /= 4
	if c.options.short {
		threads = threads[:1]
	}
	core, err := c.chooseCore()
	if err != nil {
		return err
	}
	fmt.Fprint(c.out, "\n| product, m×n×k | threads | Weir GFLOP/s | of peak | OpenBLAS | of peak | Weir : OpenBLAS |\n|---|---|---|---|---|---|---|\n")
	for _, s := range products() {
		for _, n := range threads {
			j := c.options.of(s, n)
			all, err := alternate(j.measureApart, c.openBLAS(j, core))
			if err != nil {
				return err
			}
			for i := range all[1] {
				all[1][i].Peak = all[0][i].Peak
			}
			fmt.Fprintf(c.out, "| %s | %d | %.0f | %.0f %% | %.0f | %.0f %% | %.2f |\n", s.Name, n,
				middle(all[0], byMedian), middle(all[0], ofPeak), middle(all[1], byMedian), middle(all[1], ofPeak), ratio(all[0], all[1], byMedian))
		}
	}
	fmt.Fprint(c.out, "\n| product, one thread | Weir AVX2 | OpenBLAS, HASWELL | Weir : OpenBLAS | Weir plain Go |\n|---|---|---|---|---|\n")
	for _, s := range products() {
		if s.M*s.N*s.K > 1<<30 {
			continue // plain Go takes too long
		}
		j := c.options.of(s, 1)
		all, err := alternate(j.with("avx2").measureApart, c.openBLAS(j, "HASWELL"), j.with("portable").measureApart)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "| %s | %.0f | %.0f | %.2f | %.1f |\n", s.Name,
			middle(all[0], byMedian), middle(all[1], byMedian), ratio(all[0], all[1], byMedian), middle(all[2], byMedian))
	}
	return nil
}

// chooseCore returns the core type with which OpenBLAS is fastest, over three products.
func (c *comparison) chooseCore() (best string, err error) {
	all, most := products(), 0.0
	fmt.Fprint(c.out, "\n| OpenBLAS as | which is | GFLOP/s of three products together |\n|---|---|---|\n")
	for _, core := range []string{"HASWELL", "SKYLAKEX", "COOPERLAKE", "SAPPHIRERAPIDS", "ZEN"} {
		var name string
		var took float64 // total for 10^9 operations of each product
		for _, s := range []subject{all[0], all[5], all[8]} {
			r, err := c.peers.openBLAS(c.options.of(s, 1), core)
			if err != nil {
				return "", err
			}
			name, took = strings.TrimSpace(r.Name), took+1/r.Median
		}
		fmt.Fprintf(c.out, "| %s | %s | %.0f |\n", core, name, 3/took)
		if 3/took > most {
			best, most = core, 3/took
		}
	}
	return best, nil
}

// runner measures the cost of a step without its stages.
func (c *comparison) runner() error {
	text, err := exec.Command("go", "test", "./tests/scaling", "-run", "^$", "-bench", "Step", "-benchtime", "1s", "-count", "5").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the runner: %w\n%s", err, text)
	}
	fmt.Fprint(c.out, "\n```\n")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Benchmark") {
			fmt.Fprint(c.out, line)
		}
	}
	_, err = fmt.Fprint(c.out, "```\n")
	return err
}

// processor returns the name of the processor according to the system.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // if it does not exist, the name is "?"
	fields := map[string]string{"model name": "?"}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s (family %s, model %s)", fields["model name"], fields["cpu family"], fields["model"])
}

// load returns the load average of the last minute, or "?" if the system does not report it.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); len(fields) > 0 {
		return fields[0]
	}
	return "?"
}
