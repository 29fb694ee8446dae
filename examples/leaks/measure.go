package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
)

// measured is the result of runs without one guard. Sizes are in bytes.
type measured struct {
	guard
	Microbatches int   `json:"microbatches"`
	Growth       int64 `json:"growth_per_microbatch"` // with leaks tolerated
	Peak         int64 `json:"peak"`                  // with leaks tolerated
	LiveBefore   int64 `json:"live_before"`
	LiveAfter    int64 `json:"live_after"` // with leaks tolerated
	// Reported is the microbatch at which the step without tolerance ended, and Error its
	// error; nil if there was no error. LiveAfterError is the live memory after the leaked
	// buffers were reclaimed.
	Reported       *int   `json:"reported_on_microbatch"`
	Error          string `json:"error,omitempty"`
	LiveAfterError int64  `json:"live_after_error"`
	// DryRun is the error of Record before the first step.
	DryRun string `json:"dry_run,omitempty"`
	Log    string `json:"log,omitempty"`
}

// measure runs the model without a guard three times: dry, with the default, and with leaks
// tolerated.
func measure(ctx context.Context, removed, microbatches int, folder string) (m measured, err error) {
	m = measured{guard: guards[removed], Microbatches: microbatches}
	if m.DryRun, err = dryRun(ctx, removed); err != nil {
		return m, err
	}
	_, m.LiveBefore, m.LiveAfterError, err = step(ctx, removed, microbatches, nil)
	if leak, ok := errors.AsType[*batchctx.LeakError](err); ok {
		m.Reported, m.Error, err = &leak.Microbatch, err.Error(), nil
	}
	if err != nil {
		return m, err
	}
	out := io.Discard
	if folder != "" {
		m.Log = filepath.Join(folder, m.Name+".jsonl")
		file, failed := os.Create(m.Log)
		if failed != nil {
			return m, failed
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	buffered := bufio.NewWriter(out)
	log := memlog.New(buffered)
	result, _, after, err := step(ctx, removed, microbatches, log)
	if err == nil {
		m.Growth, m.Peak, m.LiveAfter = result.Growth.Bytes, result.Peak, after
	}
	return m, errors.Join(err, log.Err(), buffered.Flush())
}

// step runs a step on a new device, and returns the live bytes of the device before and after the
// step. With a log, it tolerates leaks.
func step(ctx context.Context, removed, microbatches int, log *memlog.Log) (result *runner.Result, before, after int64, err error) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	model, err := newModel(dev, removed)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { err = errors.Join(err, model.inner.Close()) }()
	cfg := model.config()
	if log != nil {
		cfg.Memory.TolerateLeaks = true
		cfg.Hooks.Microbatch = log.Sample
		cfg.Hooks.Peak = func(_ int, owners iter.Seq[memory.PeakOwner]) {
			for o := range owners {
				log.PeakOwner(&o)
			}
		}
	}
	before = dev.Live()
	run, err := runner.New(cfg)
	if err != nil {
		return nil, 0, 0, err
	}
	result, err = run.Step(ctx, microbatches, model.entries())
	after = dev.Live()
	return result, before, after, errors.Join(err, run.Close())
}

// dryRun returns the text of the record.ErrUnended with which recording the model ends, or "" if
// there is none.
func dryRun(ctx context.Context, removed int) (string, error) {
	host, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return "", err
	}
	dev := kernels.NewNull(host)
	defer dev.Close() // nothing was computed on it
	model, err := newModel(dev, removed)
	if err != nil {
		return "", err
	}
	defer model.inner.Close() // together with its device
	_, err = record.Stages(ctx, model.config(),
		record.Shape[kernels.Buffer]{Name: "whole", Source: model.entries()})
	if errors.Is(err, record.ErrUnended) {
		return err.Error(), nil
	}
	return "", err
}
