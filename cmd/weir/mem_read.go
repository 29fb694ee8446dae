package main

import (
	"errors"
	"fmt"
	"iter"

	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/units"
)

// maxFaults is the maximum number of unreadable lines that are reported; fewFaults is the maximum if no
// line can be read. A file whose first maxLines lines contain no record is not a memory log.
const (
	maxFaults = 20
	fewFaults = 3
	maxLines  = 1 << 18
)

// logRead is the state of reading a memory log.
type logRead struct {
	name   string // for messages
	wrong  faults // the first maxFaults lines that cannot be read
	beyond int    // number of further lines that cannot be read
	torn   *fault // the last line, if it is incomplete
}

// records iterates over the records of a log and collects the faults of unreadable lines. Each record is
// valid until the next one. An error ends the iteration. The iterator can be used only once.
func (r *logRead) records(s *streams, name string) iter.Seq2[*memlog.Record, error] {
	return func(yield func(*memlog.Record, error) bool) {
		in, err := s.open(name)
		if err != nil {
			yield(nil, err)
			return
		}
		defer in.Close()
		r.name = in.name
		read := false // whether any record was read
		for record, err := range memlog.Read(in) {
			line, unread := errors.AsType[*memlog.Error](err)
			switch {
			case unread && line.Torn:
				r.torn = &fault{File: r.name, Line: line.Line, Column: line.Column, Text: line.Text}
			case unread:
				if len(r.wrong) == maxFaults {
					if r.beyond++; r.beyond == maxLines && !read {
						return // the file may be endless
					}
				} else {
					r.wrong = append(r.wrong, fault{File: r.name, Line: line.Line, Column: line.Column, Text: line.Text})
				}
			case err != nil:
				yield(nil, fmt.Errorf("%s: %w", r.name, err))
				return
			default:
				read = true
				if !yield(&record, nil) {
					return
				}
			}
		}
	}
}

// faults returns an error with the unreadable lines, or nil if there are none.
func (r *logRead) faults() error {
	switch {
	case r.wrong == nil:
		return nil
	case r.beyond > 0:
		return append(r.wrong, fault{File: r.name, Text: fmt.Sprintf("and %s more that cannot be read", units.Number(r.beyond, "line"))})
	}
	return r.wrong
}

// emptyError returns the error for a log without a record.
func (r *logRead) emptyError() error {
	if r.torn != nil {
		r.wrong = append(r.wrong, *r.torn)
	}
	if n := len(r.wrong); n > fewFaults {
		r.wrong, r.beyond = r.wrong[:fewFaults], r.beyond+n-fewFaults
	}
	found, _ := r.faults().(faults)
	return unreadable(append(found, fault{File: r.name, Text: "no record: a memory log has a line for each microbatch, as docs/memory-log.md says"}))
}
