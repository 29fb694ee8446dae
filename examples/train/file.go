package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-ml/weir/trainer/outfile"
)

// writeFile writes what write writes under a name, as outfile does.
func writeFile(path string, write func(io.Writer) error) error {
	return outfile.Failed(path, outfile.Write(path, write))
}

// writable says before a run what would stop it at its end from writing a file.
func writable(flag, path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("-%s: %s is a folder: name a file", flag, path)
	}
	if err := outfile.Writable(path); err != nil {
		return fmt.Errorf("-%s: %s cannot be written (%w): name a file in a folder that can be", flag, path, cause(err))
	}
	return nil
}

// cause is what the system says about a path, without the path.
func cause(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// plain takes the name of the system call out of an error about a path.
func plain(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", at.Path, at.Err)
	}
	return err
}
