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

// sgemm is the source of a program that measures products of OpenBLAS, and peer the source of a
// program that measures training steps of PyTorch.
//
//go:embed openblas/sgemm.c
var sgemm []byte

//go:embed peer.py
var peer []byte

// peers is the folder that peers.sh sets up, a Debian with PyTorch, OpenBLAS and a C compiler.
// "" means this machine itself.
type peers struct {
	root    string
	program string // the compiled sgemm, a path in the folder
}

// libraries is Debian's folder of libraries.
const libraries = "/usr/lib/x86_64-linux-gnu/"

// newPeers compiles the programs. The caller closes it.
func newPeers(root string) (p *peers, err error) {
	folder, err := os.MkdirTemp(filepath.Join(root, os.TempDir()), "bench")
	if err != nil {
		return nil, fmt.Errorf("-peers: %w; tests/bench/peers.sh sets them up", err)
	}
	p = &peers{root, filepath.Join(strings.TrimPrefix(folder, root), "sgemm")}
	_, err = p.run(sgemm, nil, "cc", "-O2", "-x", "c", "-o", p.program, "-", "-ldl")
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close removes the program.
func (p *peers) Close() error { return os.RemoveAll(filepath.Dir(filepath.Join(p.root, p.program))) }

// run runs a command in the folder and returns its output.
func (p *peers) run(input []byte, environment []string, command ...string) ([]byte, error) {
	args := slices.Concat([]string{"env"}, environment, command)
	if p.root != "" {
		args = append([]string{"chroot", p.root}, args...)
	}
	child := exec.Command(args[0], args[1:]...)
	var faults bytes.Buffer
	child.Stdin, child.Stderr = bytes.NewReader(input), &faults
	text, err := child.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(faults.String()), "\n")
		err = fmt.Errorf("%s: %w: %s", strings.Join(args[:min(len(args), 16)], " "), err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return text, err
}

// sample is the result of one process: tokens or 10^9 operations per second.
type sample struct {
	Name     string  `json:"name"`
	Median   float64 `json:"median"`
	Best     float64 `json:"best"`
	Resident float64 `json:"resident"` // maximum, in bytes
	peak     float64 // GFLOP/s of all threads, measured by Weir at the same time
}

func (p *peers) sample(input []byte, environment []string, command ...string) (s sample, err error) {
	text, err := p.run(input, environment, command...)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// openBLAS measures a product. core is the processor type that OpenBLAS should assume.
func (p *peers) openBLAS(s subject, threads int, core string, o options) (sample, error) {
	flag := func(is bool) string { return strconv.Itoa(map[bool]int{true: 1}[is]) }
	library := libraries + "openblas-openmp/"
	return p.sample(nil, []string{"OMP_NUM_THREADS=" + strconv.Itoa(threads), "LD_LIBRARY_PATH=" + library, "OMP_WAIT_POLICY=PASSIVE", "OPENBLAS_CORETYPE=" + core},
		p.program, library+"libopenblas.so.0", strconv.Itoa(s.M), strconv.Itoa(s.N), strconv.Itoa(s.K), flag(s.TransA), flag(s.TransB),
		flag(s.Accumulate), strconv.Itoa(threads), fmt.Sprint(o.time.Seconds()), flag(o.cpu))
}

// setting is a configuration of PyTorch.
type setting struct {
	name        string
	environment []string
	compile     bool
}

// torch measures training steps.
func (p *peers) torch(s subject, threads int, w setting, o options) (sample, error) {
	job, err := json.Marshal(struct {
		subject
		Threads int     `json:"threads"`
		Time    float64 `json:"time"`
		CPU     bool    `json:"cpu"`
		Compile bool    `json:"compile"`
	}{s, threads, o.time.Seconds(), o.cpu, w.compile})
	if err != nil {
		return sample{}, err
	}
	n := strconv.Itoa(threads)
	environment := append([]string{
		// Freed memory stays with the process: otherwise a tenth of a step is spent in page
		// faults.
		"MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184", "MALLOC_TOP_PAD_=268435456",
		"OMP_NUM_THREADS=" + n, "OPENBLAS_NUM_THREADS=" + n, "MKL_NUM_THREADS=" + n,
	}, w.environment...)
	return p.sample(peer, environment, "python3", "-", string(job))
}
