package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/outfile"
)

// failures are the files written after a failed step.
type failures struct {
	mu    sync.Mutex
	paths []string
	err   error // of writing them
}

// dump writes failure.jsonl into the folder when a step fails, while its buffers are still there:
// the last records of the rank's memory log, the step's buffers by name, and other live memory,
// except the model. With several ranks each writes its own file. An interrupted run has not
// failed.
func (r *Run) dump(rank int, err error, held iter.Seq[memory.Info]) {
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
	dumped := outfile.Failed(path, outfile.Write(path, func(w io.Writer) error { return memlog.Dump(w, samples, owners) }))
	r.failed.mu.Lock()
	defer r.failed.mu.Unlock()
	r.failed.paths = append(r.failed.paths, path)
	r.failed.err = errors.Join(r.failed.err, dumped)
}

// Explained adds to the error of a failed step where its live memory was written.
func (r *Run) Explained(err error) error {
	switch {
	case err == nil || len(r.failed.paths) == 0:
		return err
	case r.failed.err != nil:
		return fmt.Errorf("%w; the live memory could not be written: %w", err, r.failed.err)
	}
	slices.Sort(r.failed.paths)
	return fmt.Errorf("%w; the live memory at that time is in %s", err, strings.Join(r.failed.paths, ", "))
}
