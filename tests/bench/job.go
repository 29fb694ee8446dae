package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/weir-ml/weir/kernels"
)

// job is a measurement to run: of Weir in a process of this program, or of PyTorch in peer.py.
type job struct {
	subject
	Threads      int     `json:"threads"`
	Time         float64 `json:"time"` // in seconds
	CPU          bool    `json:"cpu"`  // measure processor time
	Compile      bool    `json:"compile"`
	Microbatches int     `json:"microbatches"` // of a step; PyTorch accumulates the gradients of several
	Instructions string  `json:"instructions"`
	KeepLogits   int64   `json:"keep_logits"`
	Profile      string  `json:"profile"` // folder of CPU profiles; "" means none
}

// subject is a training step or a matrix product to be measured. The fields of the other kind
// are 0.
type subject struct {
	Kind string `json:"kind"` // step or product
	Name string `json:"name"`
	configuration
	product
}

// measurement is the result of a job. Rates are in tokens per second for a step, and in
// GFLOP/s for a product. Peers fill only the first four fields.
type measurement struct {
	Name      string  `json:"name"`
	Best      float64 `json:"best"`
	Median    float64 `json:"median"`
	Resident  float64 `json:"resident"` // peak of the process, in bytes; 0 if unknown
	Threads   int     `json:"threads"`
	Steps     int     `json:"steps"`
	Arena     float64 `json:"arena"`  // peak, in bytes
	Peak      float64 `json:"peak"`   // GFLOP/s that one core reached right after the job, times the number of threads
	Rate      float64 `json:"gflops"` // of the best step, without recomputed products
	FirstLoss float64 `json:"first_loss"`
	LastLoss  float64 `json:"last_loss"`
}

// of returns the job for a subject and a number of threads.
func (j job) of(s subject, threads int) job {
	j.subject, j.Threads = s, threads
	return j
}

// with returns the job with an instruction set.
func (j job) with(instructions string) job {
	j.Instructions = instructions
	return j
}

// in returns the job with a number of microbatches in a step.
func (j job) in(microbatches int) job {
	j.Microbatches = microbatches
	return j
}

// compiled returns the job with torch.compile.
func (j job) compiled() job {
	j.Compile = true
	return j
}

// clock returns the clock for measurements: wall-clock time, or the processor time of the process, summed
// over its threads. Use processor time on a machine that does other work.
func (j job) clock() func() time.Duration {
	if j.CPU {
		return processorTime
	}
	begin := time.Now()
	return func() time.Duration { return time.Since(begin) }
}

// host opens the device, with the threads and instructions of the job.
func (j job) host() (*kernels.Host, error) {
	for i := kernels.BestInstructions; i <= kernels.NEON; i++ {
		if i.String() == j.Instructions || j.Instructions == "" {
			return kernels.NewHost(kernels.HostConfig{Threads: j.Threads, Instructions: i})
		}
	}
	return nil, fmt.Errorf("-instructions %s: want best, avx512, avx2, neon or portable", j.Instructions)
}

// measure runs the job in this process.
func (j job) measure() (m measurement, err error) {
	if j.Profile != "" {
		name := fmt.Sprintf("%s %d.pprof", j.Name, j.Threads)
		file, err := os.Create(filepath.Join(j.Profile, strings.ReplaceAll(name, " ", "-")))
		if err != nil {
			return m, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return m, errors.Join(err, file.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, file.Close())
		}()
	}
	if j.Kind == "product" {
		m, err = measureProduct(j)
	} else {
		m, err = measureStep(j)
	}
	m.Name, m.Threads, m.Resident, m.Peak = j.Name, j.Threads, residentPeak(), peak()*float64(j.Threads)
	return m, err
}

// measureApart runs the job in another process.
func (j job) measureApart() (m measurement, err error) {
	program, err := os.Executable()
	if err != nil {
		return m, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return m, err
	}
	child := exec.Command(program, "-child", string(text))
	child.Stderr = os.Stderr
	if text, err = child.Output(); err != nil {
		return m, fmt.Errorf("%s: %w", j.Name, err)
	}
	return m, json.Unmarshal(text, &m)
}
