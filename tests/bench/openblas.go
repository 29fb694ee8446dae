package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sgemm is the source of a program that measures OpenBLAS. It is compiled when it is
// asked for: nothing else here needs a C compiler.
//
//go:embed openblas/sgemm.c
var sgemm []byte

// rival is OpenBLAS, measured in turns with us.
type rival struct {
	folder, library string
}

// newRival compiles the program. The caller closes it.
func newRival(library string) (r *rival, err error) {
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	r = &rival{folder, library}
	cc := exec.Command("cc", "-O2", "-x", "c", "-o", r.program(), "-", "-ldl")
	cc.Stdin = bytes.NewReader(sgemm)
	if text, err := cc.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("-openblas: cc: %w\n%s", err, text), r.Close())
	}
	return r, nil
}

func (r *rival) program() string { return filepath.Join(r.folder, "sgemm") }

// Close removes the program.
func (r *rival) Close() error { return os.RemoveAll(r.folder) }

// rivalRate is what the program prints.
type rivalRate struct {
	Name   string  `json:"name"`
	Median float64 `json:"median"`
	Best   float64 `json:"best"`
}

// alone measures the rival.
func (r *rival) alone(s subject, threads int, o options) (rate rivalRate, err error) {
	flag := func(is bool) string { return strconv.Itoa(map[bool]int{true: 1}[is]) }
	child := exec.Command(r.program(), r.library, strconv.Itoa(s.M), strconv.Itoa(s.N), strconv.Itoa(s.K),
		flag(s.TransposedA), flag(s.TransposedB), flag(s.Accumulate), strconv.Itoa(threads), fmt.Sprint(o.time.Seconds()), flag(o.cpu))
	child.Stderr = os.Stderr
	text, err := child.Output()
	if err != nil {
		return rate, fmt.Errorf("-openblas: %s: %w", s.Name, err)
	}
	return rate, json.Unmarshal(text, &rate)
}

// measure measures ours, in turns with the rival if there is one: each turn is a process
// of its own. It returns medians over the turns; the ratio is that of neighbours in time.
func (r *rival) measure(s subject, threads int, o options) (m measurement, err error) {
	if r == nil {
		return s.measureApart(threads, o)
	}
	const turns = 5
	o.time /= 2 * turns
	var ours, theirs, ratios, peaks []float64
	for range turns {
		if m, err = s.measureApart(threads, o); err != nil {
			return m, err
		}
		rate, err := r.alone(s, threads, o)
		if err != nil {
			return m, err
		}
		m.Rival = strings.Join(strings.Fields(rate.Name), " ")
		ours, theirs = append(ours, m.MedianRate), append(theirs, rate.Median)
		ratios, peaks = append(ratios, m.MedianRate/rate.Median), append(peaks, m.Peak)
	}
	m.MedianRate, m.RivalRate, m.Ratio, m.Peak = median(ours), median(theirs), median(ratios), median(peaks)
	m.Rate = slices.Max(ours)
	return m, nil
}

// median sorts x.
func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
