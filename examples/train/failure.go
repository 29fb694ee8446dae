package main

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
)

// failures are the files that a failed step has left, by rank.
type failures struct {
	mu    sync.Mutex
	paths []string
	err   error // of writing them
}

// dump writes failure.jsonl into the run folder when a step fails, while everything
// is still there: the last records of the rank's memory log, what the step held by
// name, and what was live besides, the model aside. On several ranks there is a file
// for each. A run that was interrupted has not failed.
func (t *training) dump(rank int, err error, held iter.Seq[memory.Info]) {
	if errors.Is(err, context.Canceled) {
		return
	}
	name := "failure.jsonl"
	if t.opts.ranks > 1 {
		name = fmt.Sprintf("failure.rank%d.jsonl", rank)
	}
	path := filepath.Join(t.folder.path, name)
	owners := func(yield func(memory.Info) bool) {
		for info := range held {
			if !yield(info) {
				return
			}
		}
		for info := range t.trainer.devs[rank].All() {
			if info.Held == 0 && info.Class != memory.Resident {
				info.Name = "held by nobody"
				if !yield(info) {
					return
				}
			}
		}
	}
	samples := t.trainer.ranks.Rank(rank).Samples()
	dumped := writeFile(path, func(w io.Writer) error { return memlog.Dump(w, samples, owners) })
	t.failures.mu.Lock()
	defer t.failures.mu.Unlock()
	t.failures.paths = append(t.failures.paths, path)
	t.failures.err = errors.Join(t.failures.err, dumped)
}

// explained adds to the error of a failed step where to look.
func (t *training) explained(err error) error {
	switch {
	case err == nil || len(t.failures.paths) == 0:
		return err
	case t.failures.err != nil:
		return fmt.Errorf("%w; what was alive could not be written: %w", err, t.failures.err)
	}
	slices.Sort(t.failures.paths)
	return fmt.Errorf("%w; what was alive then is in %s", err, strings.Join(t.failures.paths, ", "))
}
