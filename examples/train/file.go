package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-ml/weir/internal/safetensors"
)

// writeFile replaces a file by what write writes, whole or not at all; a link is
// followed. Standard output by a name, and what is there and is no file, such as a pipe
// or a device, are written to as they are.
func writeFile(path string, write func(io.Writer) error) error {
	if file := standard(path); file != nil {
		return writing(path, write(file))
	}
	if target, is := regular(path); is {
		return writing(path, safetensors.WriteFileAtomic(target, write))
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return writing(path, err)
	}
	return writing(path, errors.Join(write(file), file.Close()))
}

// standard returns standard output or the output for errors where path leads there, as
// /dev/stdout does, and else nil. What is redirected to a file would be lost where that
// file was replaced, or opened once more.
func standard(path string) *os.File {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	for _, file := range [...]*os.File{os.Stdout, os.Stderr} {
		if its, err := file.Stat(); err == nil && os.SameFile(info, its) {
			return file
		}
	}
	return nil
}

// regular returns the name of the file that path leads to, or that it would lead to if it
// were there. It reports false where there is something that is no file, or a file that
// has no name any more.
func regular(path string) (target string, is bool) {
	target = path
	for range 40 { // as many links as Linux follows
		to, err := os.Readlink(target)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			folder, _ := filepath.Split(target)
			to = folder + to
		}
		target = to
	}
	info, err := os.Stat(path)
	if err != nil {
		return target, errors.Is(err, os.ErrNotExist)
	}
	its, err := os.Stat(target)
	return target, err == nil && info.Mode().IsRegular() && os.SameFile(info, its)
}

// writable says before a run what would stop it at its end from writing a file.
func writable(flag, path string) error {
	if path == "" || path == "-" || standard(path) != nil {
		return nil
	}
	unwritable := func(err error) error {
		return fmt.Errorf("-%s: %s cannot be written (%w): name a file in a folder that can be", flag, path, cause(err))
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("-%s: %s is a folder: name a file", flag, path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return unwritable(err)
	}
	target, is := regular(path)
	if !is {
		return nil
	}
	probe, err := os.CreateTemp(filepath.Dir(target), ".weir-*.tmp")
	if err != nil {
		return unwritable(err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// cause is what the system says about a path, without the path.
func cause(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
