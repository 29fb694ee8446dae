package main

import (
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/outfile"
)

// memLogCmd shows a memory log.
type memLogCmd struct {
	File  string `arg:"" name:"log" help:"A memory log, Weir's own or the minimal form that any trainer can write (docs/memory-log.md), or - for standard input."`
	HTML  string `help:"Write a page with pictures to a file." name:"html" placeholder:"FILE"`
	CSV   string `help:"Write the records as CSV to a file." name:"csv" placeholder:"FILE"`
	Trace string `help:"Write counters for Perfetto or chrome://tracing to a file." placeholder:"FILE"`
	JSON  bool   `help:"Print the findings as JSON."`
}

// Run prints what the log says and writes the files that are asked for. Lines that
// cannot be read are faults; the rest is shown all the same.
func (c *memLogCmd) Run(s *streams) error {
	if err := apart(c.File, map[string]string{"--html": c.HTML, "--csv": c.CSV, "--trace": c.Trace}); err != nil {
		return err
	}
	log, read := &memreport.Log{}, logRead{}
	err := into(c.CSV, memreport.NewCSV, func(csv memreport.Sink) error {
		return into(c.Trace, memreport.NewTrace, func(trace memreport.Sink) (err error) {
			read, err = readLog(s, c.File, log.Add, csv.Add, trace.Add)
			if err == nil && log.Records() == 0 {
				err = read.nothing()
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := c.show(s, log, &read); err != nil {
		return err
	}
	return read.faults()
}

// into calls next with a sink that writes a file, or with one that takes everything
// and does nothing where the file has no name.
func into(name string, open func(io.Writer) memreport.Sink, next func(memreport.Sink) error) error {
	if name == "" {
		return next(nowhere{})
	}
	return outfile.Write(name, func(w io.Writer) error {
		sink := open(w)
		if err := next(sink); err != nil {
			return err
		}
		return sink.Close()
	})
}

// nowhere is a sink that keeps nothing.
type nowhere struct{}

func (nowhere) Add(*memlog.Record) error { return nil }
func (nowhere) Close() error             { return nil }

// show prints the findings and writes the page.
func (c *memLogCmd) show(s *streams, log *memreport.Log, read *logRead) error {
	summary := log.Summary()
	if c.HTML != "" {
		if err := outfile.Write(c.HTML, func(w io.Writer) error { return log.Page(read.name).Write(w) }); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(s.out, summary)
	}
	if err := summary.Text(s.text); err != nil {
		return err
	}
	if read.torn != nil {
		_, err := fmt.Fprintf(s.text, "line %d is torn and left out: who wrote it is still at work, or was stopped\n", read.torn.Line)
		return err
	}
	return nil
}
