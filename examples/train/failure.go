package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// dumpFailure writes failure.jsonl into the run folder when a step fails, while
// everything is still there: the last records of the memory log, what the step
// held by name, and what was live besides, the model aside. A run that was
// interrupted has not failed.
func (t *training) dumpFailure(err error, held iter.Seq[memory.Info]) {
	if errors.Is(err, context.Canceled) {
		return
	}
	path := filepath.Join(t.folder.path, "failure.jsonl")
	owners := func(yield func(memory.Info) bool) {
		for info := range held {
			if !yield(info) {
				return
			}
		}
		for info := range t.trainer.dev.All() {
			if info.Held == 0 && info.Class != memory.Resident {
				info.Name = "held by nobody"
				if !yield(info) {
					return
				}
			}
		}
	}
	t.failure = path
	t.dumped = writeFile(path, func(w io.Writer) error { return memlog.Dump(w, t.trainer.runner.Samples(), owners) })
}

// explained adds to the error of a failed step where to look.
func (t *training) explained(err error) error {
	switch {
	case err == nil || t.failure == "":
		return err
	case t.dumped != nil:
		return fmt.Errorf("%w; what was alive could not be written: %w", err, t.dumped)
	}
	return fmt.Errorf("%w; what was alive then is in %s", err, t.failure)
}
