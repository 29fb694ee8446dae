package leaks

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/weir-ml/weir/memory/snapshot"
)

// Site is the location of an allocation: the frames of its call stack without the machinery of Python and
// PyTorch's dispatcher, innermost first.
type Site struct{ Frames []snapshot.Frame }

// MarshalText writes the frames as the viewer does, innermost first.
func (s Site) MarshalText() ([]byte, error) {
	lines := make([]string, len(s.Frames))
	for i, f := range s.Frames {
		lines[i] = fmt.Sprintf("%s:%d:%s", f.Filename, f.Line, f.Name)
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// String returns the innermost line of the program itself: file:line, and the function. It returns "(no call stack)" if
// there are no frames.
func (s Site) String() string {
	own := s.own()
	if len(own) == 0 {
		return "(no call stack)"
	}
	return line(own[0])
}

// Caller returns the line of the program that called the function of String's line, or "" if the stack has
// no such line.
func (s Site) Caller() string {
	own := s.own()
	if len(own) < 2 {
		return ""
	}
	return line(own[1])
}

// line formats a frame, omitting C++ types from the function. It replaces control characters in the
// file's strings with question marks.
func line(f snapshot.Frame) string {
	file, name := f.Filename, f.Name
	if path.IsAbs(file) {
		file = path.Base(file)
	}
	if strings.Contains(name, "::") {
		name, _, _ = strings.Cut(name, "(")
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, fmt.Sprintf("%s:%d %s", file, f.Line, name))
}

// own returns the Python frames that are not part of PyTorch. If there are none, it returns all Python frames,
// and without Python frames it returns all frames.
func (s Site) own() []snapshot.Frame {
	var python, own []snapshot.Frame
	for _, f := range s.Frames {
		if strings.HasSuffix(f.Filename, ".py") {
			python = append(python, f)
			if !strings.Contains(f.Filename, "/torch/") {
				own = append(own, f)
			}
		}
	}
	switch {
	case len(own) > 0:
		return own
	case len(python) > 0:
		return python
	}
	return s.Frames
}

// machinery lists frames that the viewer also omits (torch/cuda/_memory_viz.py).
var (
	machineryNames = []string{
		"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start", "__libc_start_main", "PyEval_", "PyObject_", "PyFunction_",
	}
	machineryFiles = []string{
		"core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c", "Objects/methodobject.c",
		"pycore_ceval.h", "ceval.c", "cpython/abstract.h",
	}
)

func siteOf(frames []snapshot.Frame) Site {
	var kept []snapshot.Frame
	for _, f := range frames {
		f.Filename = anyMicrobatch(f.Filename)
		if !containsAny(f.Name, machineryNames) && !containsAny(f.Filename, machineryFiles) {
			kept = append(kept, f)
		}
	}
	return Site{kept}
}

// anyMicrobatch removes the microbatch with which weir mem export prefixes a file, as in
// mb3/stage1/F, so that the site is the same in every microbatch.
func anyMicrobatch(filename string) string {
	if rest, ok := strings.CutPrefix(filename, "mb"); ok {
		number, place, cut := strings.Cut(rest, "/")
		if _, err := strconv.Atoi(number); cut && err == nil {
			return place
		}
	}
	return filename
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// stacker numbers call stacks by their contents, starting from 1 in the order in which it sees them; an empty
// stack is 0. It recognizes a list of frames that it has seen before by its address.
type stacker struct {
	places map[stackKey]int
	texts  map[string]int
}

type stackKey struct {
	first *snapshot.Frame
	len   int
}

func (s *stacker) number(frames []snapshot.Frame) int {
	if len(frames) == 0 {
		return 0
	}
	at := stackKey{&frames[0], len(frames)}
	if n, ok := s.places[at]; ok {
		return n
	}
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&text, "%s\x00%s\x00%d\x00", anyMicrobatch(f.Filename), f.Name, f.Line)
	}
	n, ok := s.texts[text.String()]
	if !ok {
		n = len(s.texts)
		s.texts[text.String()] = n
	}
	s.places[at] = n
	return n
}
