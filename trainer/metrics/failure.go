package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/atomicfile"
)

// failures records the files written after a failed step.
type failures struct {
	mu    sync.Mutex
	paths []string
	err   error // errors in writing them
}

// dump writes failure.jsonl into the folder Failures when a step fails, while the step's buffers
// still exist. The file contains the last records of the rank's memory log, the step's buffers by
// name, and other live memory, except the model. If there are several ranks, each writes its own
// file. An interrupted run has not failed.
func (r *Recorder) dump(rank int, err error, held iter.Seq[memory.Info]) {
	r.ranks[rank].stop()
	if r.Failures == "" || r.Samples == nil || errors.Is(err, context.Canceled) {
		return
	}
	name := "failure.jsonl"
	if len(r.ranks) > 1 {
		name = fmt.Sprintf("failure.rank%d.jsonl", rank)
	}
	path := filepath.Join(r.Failures, name)
	owners := func(yield func(memory.Info) bool) {
		for info := range held {
			if !yield(info) {
				return
			}
		}
		for info := range r.Spaces[rank].All() {
			if info.Held == 0 && info.Class != memory.Resident {
				info.Name = "held by nobody"
				if !yield(info) {
					return
				}
			}
		}
	}
	samples := r.Samples(rank)
	dumped := os.MkdirAll(r.Failures, 0o777) // the first process has made it, perhaps on another host
	if dumped == nil {
		dumped = atomicfile.Write(path, func(w io.Writer) error { return memlog.Dump(w, samples, owners) })
	}
	dumped = atomicfile.Failed(path, dumped)
	r.failed.mu.Lock()
	defer r.failed.mu.Unlock()
	r.failed.paths = append(r.failed.paths, path)
	r.failed.err = errors.Join(r.failed.err, dumped)
}

// Explained adds, to the error of a failed step, the location of the files with the step's live
// memory, or why they could not be written.
func (r *Recorder) Explained(err error) error {
	switch {
	case err == nil || len(r.failed.paths) == 0:
		return err
	case r.failed.err != nil:
		return fmt.Errorf("%w; the live memory could not be written: %w", err, r.failed.err)
	}
	slices.Sort(r.failed.paths)
	return fmt.Errorf("%w; the live memory at that time is in %s", err, strings.Join(r.failed.paths, ", "))
}
