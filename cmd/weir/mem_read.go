package main

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/units"
)

// mostFaults is how many lines that cannot be read are told of, and fewFaults how many
// where no line can be read. After mostLines that are no record a file is no memory log.
const (
	mostFaults = 20
	fewFaults  = 3
	mostLines  = 1 << 18
)

// logRead is how the reading of a memory log went.
type logRead struct {
	name   string // for people
	wrong  faults // lines that cannot be read, the first mostFaults
	beyond int    // how many more there are
	torn   *fault // the last line, where it is torn
}

// records returns the records of a log, each borrowed until the next, and keeps what
// cannot be read. An error is the last element. The iterator is for a single use.
func (r *logRead) records(s *streams, name string) iter.Seq2[*memlog.Record, error] {
	return func(yield func(*memlog.Record, error) bool) {
		in, err := s.open(name)
		if err != nil {
			yield(nil, err)
			return
		}
		defer in.Close()
		r.name = in.name
		read := false // a record
		for record, err := range memlog.Read(in) {
			switch {
			case errors.Is(err, memlog.ErrTorn):
				torn := placed(r.name, err)
				r.torn = &torn
			case errors.Is(err, memlog.ErrFormat):
				if len(r.wrong) == mostFaults {
					if r.beyond++; r.beyond == mostLines && !read {
						return // of what may have no end
					}
				} else {
					r.wrong = append(r.wrong, placed(r.name, err))
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

// faults returns the lines that cannot be read as an error, nil where there are none.
func (r *logRead) faults() error {
	switch {
	case r.wrong == nil:
		return nil
	case r.beyond > 0:
		return append(r.wrong, fault{File: r.name, Text: fmt.Sprintf("and %s more that cannot be read", units.Number(r.beyond, "line"))})
	}
	return r.wrong
}

// nothing is the error of a log without a record.
func (r *logRead) nothing() error {
	if r.torn != nil {
		r.wrong = append(r.wrong, *r.torn)
	}
	if n := len(r.wrong); n > fewFaults {
		r.wrong, r.beyond = r.wrong[:fewFaults], r.beyond+n-fewFaults
	}
	found, _ := r.faults().(faults)
	return append(found, fault{File: r.name, Text: "no record: a memory log has a line for each microbatch, as docs/memory-log.md says"})
}

// placed is the fault that an error of memlog tells of: line:column: text.
func placed(name string, err error) fault {
	text := strings.TrimPrefix(err.Error(), memlog.ErrFormat.Error()+": ")
	f := fault{File: name, Text: text}
	if parts := strings.SplitN(text, ":", 3); len(parts) == 3 {
		f.Line, _ = strconv.Atoi(parts[0])
		f.Column, _ = strconv.Atoi(parts[1])
		f.Text = strings.TrimSpace(parts[2])
	}
	return f
}
