package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/timing"
	"github.com/weir-ml/weir/schedule/lengths"
)

// maxLine is the largest number of bytes in a line of a file of lengths.
const maxLine = 16 << 20

// lengthsReader reads lists of lengths in tokens. Each line is a list, with spaces or commas between the
// numbers. The reader skips blank lines and comments, which begin with #.
type lengthsReader struct {
	name  string
	lines *bufio.Scanner
	line  int // the number of the last line that was read, from 1
}

func newLengthsReader(r io.Reader, name string) *lengthsReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	return &lengthsReader{name: name, lines: lines}
}

// next returns the lengths in the next line, or io.EOF.
func (r *lengthsReader) next() (list []int64, err error) {
	for r.lines.Scan() {
		r.line++
		text, _, _ := strings.Cut(r.lines.Text(), "#")
		const between = " \t\r,"
		for column := 0; ; {
			column = len(text) - len(strings.TrimLeft(text[column:], between))
			word := text[column:]
			if end := strings.IndexAny(word, between); end >= 0 {
				word = word[:end]
			}
			if word == "" {
				break
			}
			length, err := strconv.ParseInt(word, 10, 64)
			if err != nil || length < 1 || length > lengths.MaxLength {
				return nil, unreadable{{File: r.name, Line: r.line, Column: column + 1, Text: fmt.Sprintf("found %s, expected a length of 1 to %d tokens", strconv.Quote(word), lengths.MaxLength)}}
			}
			list, column = append(list, length), column+len(word)
		}
		if len(list) > 0 {
			return list, nil
		}
	}
	if errors.Is(r.lines.Err(), bufio.ErrTooLong) {
		return nil, unreadable{{File: r.name, Line: r.line + 1, Column: 1, Text: fmt.Sprintf("the line has more than %d bytes", maxLine)}}
	}
	if r.lines.Err() != nil {
		return nil, r.lines.Err()
	}
	return nil, io.EOF
}

// lengthsFile returns the lists of lengths in a file.
func lengthsFile(name string) (lists [][]int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() // Errors do not matter after reading.
	for r := newLengthsReader(file, name); ; {
		list, err := r.next()
		if errors.Is(err, io.EOF) && lists == nil {
			return nil, unreadable{{File: name, Text: "it has no lengths: give a line with the lengths of the sequences of each microbatch"}}
		}
		if errors.Is(err, io.EOF) {
			return lists, nil
		}
		if err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
}

// byLength replaces the times of a report's model with functions of the microbatches' lengths, fitted to
// the median times of each microbatch. It returns the largest relative deviation of a median from the fit.
func byLength(r *timing.Report, file string) (misfit float64, err error) {
	lists, err := lengthsFile(file)
	if err != nil {
		return 0, err
	}
	if len(lists) != r.Microbatches {
		return 0, usage("--lengths: %s has lengths of %d microbatches, and the traces have %d", file, len(lists), r.Microbatches)
	}
	for _, sequences := range lists {
		r.Model.Lengths = append(r.Model.Lengths, lengths.Of(sequences...))
	}
	for _, c := range r.Costs {
		s := &r.Model.Stages[c.Stage]
		s.Joined = 0 // the two microbatches of a pair may differ
		token, square := &s.PerToken, &s.PerSquare
		to, known := map[string]struct {
			constant      *int64
			token, square *float64
		}{"F": {&s.F, &token.F, &square.F}, "I": {&s.I, &token.I, &square.I}, "W": {&s.W, &token.W, &square.W}, "B": {&s.B, &token.B, &square.B}}[c.Kind]
		if !known {
			continue
		}
		var points []lengths.Point
		for mb, time := range c.ByMicrobatch {
			points = append(points, lengths.Point{Size: r.Model.Lengths[r.Plan.BatchIndex(mb)], Value: float64(time)})
		}
		amount, off := lengths.Fit(points)
		beside := *to.constant - c.Median // gaps and messages, which do not depend on lengths
		*to.constant, *to.token, *to.square = beside+int64(amount.Constant), amount.Token, amount.Square
		misfit = max(misfit, off)
		if c.Kind == "B" && r.Halved {
			s.I, s.W = s.B/2, s.B-s.B/2
			token.I, token.W, square.I, square.W = token.B/2, token.B/2, square.B/2, square.B/2
		}
	}
	return misfit, nil
}
