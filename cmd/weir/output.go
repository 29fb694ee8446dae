package main

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/weir-ml/weir/internal/outfile"
)

// writeFile writes what write writes under a name, as outfile does.
func writeFile(name string, write func(io.Writer) error) error {
	var own error // of write, which may have read another file
	err := outfile.Write(name, func(w io.Writer) error {
		own = write(output{w, name})
		return own
	})
	if own != nil {
		return own
	}
	return called(err, name)
}

// output writes, and says its name where it cannot.
type output struct {
	io.Writer
	name string
}

func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	return n, called(err, o.name)
}

// called returns an error of the system with a name in the place of that of a file that
// was written beside it first.
func called(err error, name string) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: at.Op, Path: name, Err: at.Err}
	}
	return err
}

// apart is an error where an output is the input, or two outputs are one file.
func apart(input string, outputs map[string]string) error {
	there, _ := os.Stat(input)
	flags := map[string]string{} // by the name of the output
	for flag, name := range outputs {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && os.SameFile(there, info) {
			return usage("%s %s is what is read: name another file", flag, name)
		}
		if other, is := flags[name]; is {
			return usage("%s and %s name one file: %s", min(flag, other), max(flag, other), name)
		}
		flags[name] = flag
	}
	return nil
}
