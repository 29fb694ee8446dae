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

// failures are the files that a failed step has left.
type failures struct {
	mu    sync.Mutex
	paths []string
	err   error // of writing them
}

// dump writes failure.jsonl into the folder when a step fails, while everything is still
// there: the last records of the rank's memory log, what the step held by name, and what was
// live besides, the model aside. On several ranks there is a file for each. A run that was
// interrupted has not failed.
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

// Explained adds to the error of a failed step where to see what was alive.
func (r *Run) Explained(err error) error {
	switch {
	case err == nil || len(r.failed.paths) == 0:
		return err
	case r.failed.err != nil:
		return fmt.Errorf("%w; what was alive could not be written: %w", err, r.failed.err)
	}
	slices.Sort(r.failed.paths)
	return fmt.Errorf("%w; what was alive then is in %s", err, strings.Join(r.failed.paths, ", "))
}
