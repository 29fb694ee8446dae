package format

import (
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// lists returns the ranges of the ranks' lists, which are in brackets or, if there are no brackets, one
// per line.
func (f *File) lists(ranks int) ([]line, error) {
	if strings.IndexByte(f.text, '[') < 0 {
		if i := strings.IndexByte(f.text, ']'); i >= 0 {
			return nil, f.unopenedError(i)
		}
		return f.lines(ranks)
	}
	lists, err := f.brackets()
	switch {
	case err != nil:
		return nil, err
	case ranks != 0 && len(lists) > ranks:
		return nil, f.fault(lists[ranks].start, "found a list for rank %d, expected %d ranks, as in the options", ranks, ranks)
	case len(lists) < ranks:
		return nil, f.fault(len(f.text), "found the end of the file, expected a list for rank %d", len(lists))
	}
	return lists, nil
}

// brackets matches the brackets of a text. A rank's list holds numbers, and may span several
// lines. The lists follow one another, or are inside one outer pair.
func (f *File) brackets() ([]line, error) {
	var (
		lists  []line
		open   []int    // offsets of the open brackets
		nested bool     // the outer bracket, which may already be closed, contains lists
		number = absent // the first number directly inside the outer bracket
	)
	for i := range len(f.text) {
		switch c := f.text[i]; {
		case c == '[' && len(open) == 2:
			return nil, f.fault(i, "found %s, expected a number: lists of ranks are at most inside one other list", f.found(i))
		case c == '[' && number != absent:
			return nil, f.looseError(number)
		case c == '[':
			nested = len(open) == 1
			open = append(open, i)
		case c == ']' && len(open) == 0:
			return nil, f.unopenedError(i)
		case c == ']':
			start := open[len(open)-1]
			open = open[:len(open)-1]
			if len(open) == 0 && nested {
				continue
			}
			if len(lists) == schedule.MaxStages {
				return nil, f.fault(start, "found the list of rank %d, expected at most %d ranks", len(lists), schedule.MaxStages)
			}
			lists, number = append(lists, line{start, i}), absent
		case strings.IndexByte(orderSeparators, c) >= 0 || len(open) == 2:
		case len(open) == 0 || nested:
			return nil, f.looseError(i)
		case number == absent:
			number = i
		}
	}
	if len(open) > 0 {
		last := open[len(open)-1]
		return nil, f.fault(last, "found %s, expected a closing ] after it", f.found(last))
	}
	return lists, nil
}

const absent = -1 // used in place of an offset

// unopenedError returns the error for a closing bracket without an opening one.
func (f *File) unopenedError(offset int) error {
	return f.fault(offset, "found %q, expected an opening [ before it", f.text[offset:offset+1])
}

// looseError returns the error for a number outside the ranks' lists.
func (f *File) looseError(offset int) error {
	return f.fault(offset, "found %s, expected a [ before it: the other numbers are in brackets", f.found(offset))
}
