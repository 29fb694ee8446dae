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

func (p *peers) measure(input []byte, environment []string, command ...string) (m measurement, err error) {
	text, err := p.run(input, environment, command...)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// openBLAS measures a product. core is the processor type that OpenBLAS should assume.
func (p *peers) openBLAS(j job, core string) (measurement, error) {
	flag := func(is bool) string { return strconv.Itoa(map[bool]int{true: 1}[is]) }
	library, threads := libraries+"openblas-openmp/", strconv.Itoa(j.Threads)
	return p.measure(nil, []string{"OMP_NUM_THREADS=" + threads, "LD_LIBRARY_PATH=" + library, "OMP_WAIT_POLICY=PASSIVE", "OPENBLAS_CORETYPE=" + core},
		p.program, library+"libopenblas.so.0", strconv.Itoa(j.M), strconv.Itoa(j.N), strconv.Itoa(j.K), flag(j.TransA), flag(j.TransB),
		flag(j.Accumulate), threads, fmt.Sprint(j.Time), flag(j.CPU))
}

// setting is a configuration of PyTorch.
type setting struct {
	name        string
	environment []string
	compile     bool
}

// torch measures training steps.
func (p *peers) torch(j job, w setting) (measurement, error) {
	j.Compile = w.compile
	text, err := json.Marshal(j)
	if err != nil {
		return measurement{}, err
	}
	n := strconv.Itoa(j.Threads)
	environment := append([]string{
		// Freed memory stays with the process: otherwise a tenth of a step is spent in page
		// faults.
		"MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184", "MALLOC_TOP_PAD_=268435456",
		"OMP_NUM_THREADS=" + n, "OPENBLAS_NUM_THREADS=" + n, "MKL_NUM_THREADS=" + n,
	}, w.environment...)
	return p.measure(peer, environment, "python3", "-", string(text))
}
