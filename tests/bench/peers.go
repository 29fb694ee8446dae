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

// peers locates the programs with which the bench compares Weir.
type peers struct {
	python  string // with PyTorch
	library string // OpenBLAS
	program string // the compiled sgemm
}

// newPeers returns the peers in a folder that peers.sh has set up, and compiles sgemm. The caller closes
// them.
func newPeers(root string) (p *peers, err error) {
	const setUp = "tests/bench/peers.sh sets them up"
	libraries, err := filepath.Glob(filepath.Join(root, "lib/python3*/site-packages/scipy_openblas32/lib/libscipy_openblas.so"))
	if err != nil || len(libraries) == 0 {
		return nil, fmt.Errorf("-peers %s: it contains no OpenBLAS; %s", root, setUp)
	}
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	p = &peers{filepath.Join(root, "bin/python"), libraries[0], filepath.Join(folder, "sgemm")}
	if _, err = run(sgemm, nil, "cc", "-O2", "-x", "c", "-o", p.program, "-", "-ldl"); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close removes the program.
func (p *peers) Close() error { return os.RemoveAll(filepath.Dir(p.program)) }

// run runs a command and returns its output.
func run(input []byte, environment []string, command ...string) ([]byte, error) {
	child := exec.Command(command[0], command[1:]...)
	var faults bytes.Buffer
	child.Env = append(os.Environ(), environment...)
	child.Stdin, child.Stderr = bytes.NewReader(input), &faults
	text, err := child.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(faults.String()), "\n")
		err = fmt.Errorf("%s: %w: %s", strings.Join(command[:min(len(command), 16)], " "), err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return text, err
}

func measure(input []byte, environment []string, command ...string) (m measurement, err error) {
	text, err := run(input, environment, command...)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// openBLAS measures a product. core is the processor type that OpenBLAS should assume.
func (p *peers) openBLAS(j job, core string) (measurement, error) {
	flag := func(is bool) string { return strconv.Itoa(map[bool]int{true: 1}[is]) }
	threads := strconv.Itoa(j.Threads)
	return measure(nil, []string{"OPENBLAS_NUM_THREADS=" + threads, "OPENBLAS_CORETYPE=" + core},
		p.program, p.library, strconv.Itoa(j.M), strconv.Itoa(j.N), strconv.Itoa(j.K), flag(j.TransA), flag(j.TransB),
		flag(j.Accumulate), threads, fmt.Sprint(j.Time), flag(j.CPU))
}

// torch measures training steps with variables in the environment of PyTorch.
func (p *peers) torch(j job, environment []string) (measurement, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return measurement{}, err
	}
	return measure(peer, append([]string{
		// Freed memory stays with the process. Otherwise a tenth of each step is spent on page
		// faults.
		"MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184", "MALLOC_TOP_PAD_=268435456",
		"OMP_NUM_THREADS=" + strconv.Itoa(j.Threads),
	}, environment...), p.python, "-", string(text))
}
