package diagnostic

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Error is a fault in something that a user gave: parameters, or the text of a file.
type Error struct {
	Kind         error  // the package's sentinel, which errors.Is finds
	File         string // the name of the file, or ""
	Line, Column int    // from 1, the column in bytes; both are 0 if the fault has no position
	Err          error  // the fault
}

// OtherVersion is the remedy for a file whose format has a number that this version does not read.
const OtherVersion = "read it with the version of Weir that wrote it, or write it again with this one"

// Limit adds a remedy to an error that says that the process has too many open files.
func Limit(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w: let the process open more, as with ulimit -n", err)
	}
	return err
}

// Errorf returns an error of a kind without a position. The format is that of fmt.Errorf.
func Errorf(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// At returns an error of a kind at an offset of a text.
func At(kind error, file string, text []byte, offset int, err error) error {
	before := text[:offset]
	line, column := 1+bytes.Count(before, []byte{'\n'}), offset-bytes.LastIndexByte(before, '\n')
	return &Error{Kind: kind, File: file, Line: line, Column: column, Err: err}
}

// Error returns the kind, the position and the fault.
func (e *Error) Error() string { return e.Kind.Error() + ": " + e.position() + e.Err.Error() }

// Unwrap returns the fault.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's kind.
func (e *Error) Is(target error) bool { return target == e.Kind }

// LineColumn returns the line and the column.
func (e *Error) LineColumn() (line, column int) { return e.Line, e.Column }

// Fault returns the text of the fault.
func (e *Error) Fault() string { return e.Err.Error() }

func (e *Error) position() string {
	if e.Line == 0 {
		return ""
	}
	before := "line "
	if e.File != "" {
		before = e.File + ":"
	}
	return fmt.Sprintf("%s%d:%d: ", before, e.Line, e.Column)
}

// Text returns the text of err, with the kinds of the Errors in its tree replaced by their words. A kind
// without a word is left out, and so are all kinds if word is nil.
func Text(err error, word func(kind error) string) string {
	if e, ok := err.(*Error); ok { // err itself, not an error that err wraps in its own text
		text := e.position() + Text(e.Err, word)
		if word == nil || word(e.Kind) == "" {
			return text
		}
		return word(e.Kind) + ": " + text
	}
	var wrapped []error
	if one := errors.Unwrap(err); one != nil {
		wrapped = []error{one}
	} else if all, ok := err.(interface{ Unwrap() []error }); ok {
		wrapped = all.Unwrap()
	}
	text := err.Error()
	for _, one := range wrapped {
		text = strings.Replace(text, one.Error(), Text(one, word), 1)
	}
	return text
}
