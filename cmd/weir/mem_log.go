package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/memrecords"
	"github.com/weir-ml/weir/internal/formats/spelling"
	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/atomicfile"
)

// memLogCmd shows a memory log.
type memLogCmd struct {
	File  string `arg:"" name:"log" predictor:"file" help:"A memory log, in Weir's form or the minimal form that any trainer can write (docs/memory-log.md), or - for standard input."`
	HTML  string `help:"Write a page with pictures to a file." name:"html" placeholder:"FILE"`
	CSV   string `help:"Write the records as CSV to a file." name:"csv" placeholder:"FILE"`
	Trace string `help:"Write counters for Perfetto or chrome://tracing to a file." placeholder:"FILE"`
	JSON  bool   `help:"Print the findings as JSON."`
	Least size   `name:"min-growth" help:"The least growth of a level per microbatch to report, such as 1KiB; less counts as noise. Levels that Weir counts itself have no noise." placeholder:"BYTES"`
	growthStatus
}

// growthStatus holds the flag for the exit status of commands that look for growth.
type growthStatus struct {
	ExitZero bool `help:"Exit with status 0 even if something grows."`
}

// status returns the error that sets the exit status, after everything has been printed.
func (g growthStatus) status(grows bool) error {
	if grows && !g.ExitZero {
		return errShown
	}
	return nil
}

// Help returns the text that is printed below the flags.
func (memLogCmd) Help() string {
	return `The exit status is 1 if something grows or a line cannot be read, and 0 otherwise. A warm-up that saturates is not growth. If a log is too short to tell growth from chance, the outcome is inconclusive and the exit status is 0.`
}

// Run prints the findings and writes the requested files. Lines that cannot be read are
// faults; the remaining lines are shown nevertheless.
func (c *memLogCmd) Run(s *streams) error {
	if err := checkOutputs(c.File, map[string]string{"--html": c.HTML, "--csv": c.CSV, "--trace": c.Trace}); err != nil {
		return err
	}
	if err := memCommand(c.File); err != nil {
		return err
	}
	log, read := &memreport.Log{Least: int64(c.Least)}, logRead{}
	err := writeRecords(c.CSV, memrecords.NewCSV, func(csv recordFunc) error {
		return writeRecords(c.Trace, memrecords.NewTrace, func(trace recordFunc) error {
			for record, err := range read.records(s, c.File) {
				if err == nil {
					err = cmp.Or(log.Add(record), csv(record), trace(record))
				}
				if err != nil {
					return err
				}
			}
			if log.Records() == 0 {
				return read.emptyError()
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return c.print(s, log, &read)
}

// memCommand returns an error for a name that is neither a file nor the name of a command of weir mem.
func memCommand(name string) error {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) || strings.ContainsAny(name, "./\\-") || slices.Contains(memCommands, name) {
		return nil
	}
	return usage("there is no file %s, nor a command weir mem %s: %s", name, name, spelling.Hint(name, memCommands))
}

var memCommands = []string{"log", "plan", "diff", "export", "leaks"}

// recordFunc receives a record of a log.
type recordFunc = func(*memlog.Record) error

// writeRecords calls next with a function that writes records to a file, or does nothing with them
// if the file has no name.
func writeRecords(name string, open func(io.Writer) memrecords.Sink, next func(recordFunc) error) error {
	if name == "" {
		return next(func(*memlog.Record) error { return nil })
	}
	return atomicfile.Write(name, func(w io.Writer) error {
		sink := open(w)
		if err := next(sink.Add); err != nil {
			return err
		}
		return sink.Close()
	})
}

// relativeLink returns the link from a page to a file, or nil for standard input.
func relativeLink(page, file string) []string {
	if file == "-" {
		return nil
	}
	from, err1 := filepath.Abs(filepath.Dir(page))
	to, err2 := filepath.Abs(file)
	link, err3 := filepath.Rel(from, to)
	if errors.Join(err1, err2, err3) != nil {
		return nil
	}
	return []string{filepath.ToSlash(link)}
}

// print prints the findings and writes the page.
func (c *memLogCmd) print(s *streams, log *memreport.Log, read *logRead) error {
	summary := log.Summary()
	if c.HTML != "" {
		page := log.Page(read.name)
		page.Files = relativeLink(c.HTML, c.File)
		if err := atomicfile.Write(c.HTML, page.Write); err != nil {
			return err
		}
	}
	if c.JSON {
		if err := printJSON(s.out, summary); err != nil {
			return err
		}
	} else {
		summary.Text(s.text)
		if read.torn != nil {
			fmt.Fprintf(s.text, "line %d is incomplete and left out: its writer is still running, or was stopped\n", read.torn.Line)
		}
	}
	if err := read.faults(); err != nil {
		return err
	}
	return c.status(summary.Growth.Grows())
}
