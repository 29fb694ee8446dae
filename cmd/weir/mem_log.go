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
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/terminal"
)

// memLogCmd shows a memory log.
type memLogCmd struct {
	Logs  []string `arg:"" name:"log" predictor:"file" help:"A memory log, in Weir's form or the minimal form that any trainer can write (docs/memory-log.md), or - for standard input. Several logs are those of the ranks of one run."`
	HTML  string   `help:"Write a page with pictures to a file." name:"html" placeholder:"FILE"`
	CSV   string   `help:"Write the records as CSV to a file." name:"csv" placeholder:"FILE"`
	Trace string   `help:"Write counters for Perfetto or chrome://tracing to a file." placeholder:"FILE"`
	JSON  bool     `help:"Print the findings as JSON."`
	Least size     `name:"min-growth" help:"The least growth of a level per microbatch to report, such as 1KiB; less counts as noise. Levels that Weir counts itself have no noise." placeholder:"BYTES"`
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
	for _, name := range c.Logs {
		if err := cmp.Or(checkOutputs(name, map[string]string{"--html": c.HTML, "--csv": c.CSV, "--trace": c.Trace}), memCommand(name)); err != nil {
			return err
		}
	}
	log, reads := &memreport.Log{Least: int64(c.Least)}, make([]logRead, len(c.Logs))
	err := writeRecords(c.CSV, memrecords.NewCSV, func(csv recordFunc) error {
		return writeRecords(c.Trace, memrecords.NewTrace, func(trace recordFunc) error {
			return c.read(s, reads, log, func(r *memlog.Record) error { return cmp.Or(csv(r), trace(r)) })
		})
	})
	if err != nil {
		return err
	}
	return c.print(s, log, reads)
}

// read adds the records of all files to the log, and passes them to write. It returns an error if a rank has records in
// two files, or if a file has none.
func (c *memLogCmd) read(s *streams, reads []logRead, log *memreport.Log, write recordFunc) error {
	files := map[int]int{} // by rank
	for i, name := range c.Logs {
		before := log.Records()
		for record, err := range reads[i].records(s, name) {
			if err == nil {
				err = cmp.Or(log.Add(record), write(record))
			}
			if err != nil {
				return err
			}
			if !record.Sampled() {
				continue
			}
			if file, seen := files[record.Rank]; seen && file != i {
				return usage("rank %d is in %s and in %s: give logs of one run; cat joins the files of a rank, the oldest first, for weir mem log -", record.Rank, c.Logs[file], name)
			}
			files[record.Rank] = i
		}
		if log.Records() == before {
			return reads[i].emptyError()
		}
	}
	return nil
}

// memCommand returns an error for a word that is neither a file nor the name of a command of weir mem. It accepts
// every name with a dot, a slash or a hyphen, because no command has such a name.
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

// relativeLink returns the link from a page to a file, or nil for standard input and if no relative path exists.
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
func (c *memLogCmd) print(s *streams, log *memreport.Log, reads []logRead) error {
	summary := log.Summary()
	if c.HTML != "" {
		name := reads[0].name
		if n := len(reads); n > 1 {
			name = units.Number(n, "log")
		}
		page := log.Page(name)
		for _, file := range c.Logs {
			page.Files = append(page.Files, relativeLink(c.HTML, file)...)
		}
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
		for i := range reads {
			of := ""
			if len(reads) > 1 {
				of = " of " + terminal.Quote(reads[i].name)
			}
			if torn := reads[i].torn; torn != nil {
				fmt.Fprintf(s.text, "line %d%s is incomplete and left out: its writer is still running, or was stopped\n", torn.Line, of)
			}
		}
	}
	var wrong faults
	for i := range reads {
		found, _ := reads[i].faults().(faults)
		wrong = append(wrong, found...)
	}
	if wrong != nil {
		return wrong
	}
	return c.status(summary.Growth.Grows())
}
