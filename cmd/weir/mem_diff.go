package main

import (
	"errors"
	"fmt"
	"iter"

	"github.com/weir-ml/weir/cmd/weir/internal/memrecords"
	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/terminal"
)

// memDiffCmd compares two memory logs.
type memDiffCmd struct {
	A    string `arg:"" help:"A memory log, or - for standard input."`
	B    string `arg:"" help:"Another memory log."`
	JSON bool   `help:"Print the difference and both summaries as JSON."`
}

// Help returns the text that is printed below the flags.
func (memDiffCmd) Help() string {
	return `Compares records rank by rank, in order: step, microbatch, stage, action, bytes and weight, but not times. The exit status is 0 if the logs are equal, 1 if they differ, and 2 if one cannot be read.`
}

// comparison is the output of --json. First is null if the logs are equal.
type comparison struct {
	First *memrecords.Difference `json:"first"`
	A     *memreport.Summary     `json:"a"`
	B     *memreport.Summary     `json:"b"`
}

// Run prints the first difference and both summaries.
func (c *memDiffCmd) Run(s *streams) error {
	if c.A == "-" && c.B == "-" {
		return usage("only one of the logs can come from standard input")
	}
	d := &memrecords.Diff{}
	torn, err := c.read(s, d)
	if err != nil {
		return err
	}
	first := d.First()
	out := comparison{first, d.Log(0).Summary(), d.Log(1).Summary()}
	if c.JSON {
		if err := printJSON(s.out, out); err != nil {
			return err
		}
	} else {
		first.Text(s.text, terminal.Quote(c.A), terminal.Quote(c.B))
		fmt.Fprintln(s.text)
		memreport.Compare(s.text, out.A, out.B)
		for _, name := range torn {
			fmt.Fprintf(s.text, "the last line of %s is incomplete and left out\n", terminal.Quote(name))
		}
	}
	if first != nil {
		return errShown
	}
	return nil
}

// read passes the records of both logs to d. It reads the logs alternately, so that few records of one wait
// for those of the other. It returns the names of the logs whose last line is incomplete.
func (c *memDiffCmd) read(s *streams, d *memrecords.Diff) (torn []string, err error) {
	var reads [2]logRead
	var next [2]func() (*memlog.Record, error, bool)
	for i, name := range [...]string{c.A, c.B} {
		var stop func()
		next[i], stop = iter.Pull2(reads[i].records(s, name))
		defer stop()
	}
	for more := true; more; {
		more = false
		for i := range next {
			record, err, ok := next[i]()
			if err != nil {
				return nil, err
			}
			if ok {
				more = true
				if err := d.Add(i, record); err != nil {
					return nil, err
				}
			}
		}
	}
	var wrong error
	for i := range reads {
		err := reads[i].faults()
		if d.Log(i).Records() == 0 {
			err = reads[i].emptyError()
		}
		wrong = errors.Join(wrong, err)
		if reads[i].torn != nil {
			torn = append(torn, reads[i].name)
		}
	}
	if wrong != nil { // exit status 1 would mean that the logs differ
		return nil, usage("%s", wrong)
	}
	return torn, nil
}
