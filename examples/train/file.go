package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-ml/weir/internal/safetensors"
)

// writeFile replaces a file by what write writes, whole or not at all. What is
// there and is no file, such as a pipe or a device, is written to as it is.
func writeFile(path string, write func(io.Writer) error) error {
	if !special(path) {
		return writing(path, safetensors.WriteFileAtomic(path, write))
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return writing(path, err)
	}
	return writing(path, errors.Join(write(file), file.Close()))
}

// special reports whether there is something at path that is not a file.
func special(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

// writable says before a run what would stop it at its end from writing a file.
func writable(flag, path string) error {
	if path == "" || path == "-" {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("-%s: %s is a folder: name a file", flag, path)
	}
	if special(path) {
		return nil
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".weir-*.tmp")
	if err != nil {
		return fmt.Errorf("-%s: %s cannot be written (%w): name a file in a folder that can be", flag, path, cause(err))
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
