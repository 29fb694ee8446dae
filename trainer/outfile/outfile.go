package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file by what write writes, as Replace does, and follows a link to it;
// where that fails, what was there stays. Standard output by a name, and what is there and
// is no file, such as a pipe or a device, are written to as they are. Errors are those of
// write, or of the system with the name of the file.
func Write(path string, write func(io.Writer) error) error {
	if file := Standard(path); file != nil {
		return write(file)
	}
	if target, is := Regular(path); is {
		return Replace(target, write)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0) // os.Create would read a pipe too
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// Standard returns standard output or the output for errors where path leads there, as
// /dev/stdout does, and else nil. Output that is redirected to a file would be lost if that
// file was replaced, or opened once more.
func Standard(path string) *os.File {
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

// Regular returns the name of the file that path leads to, or that it would lead to if it
// were there. It reports false where there is something that is no file, or a file that
// has no name any more.
func Regular(path string) (target string, is bool) {
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

// Plain takes the name of the system call out of an error about a path.
func Plain(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", at.Path, at.Err)
	}
	return err
}

// CheckFile reports before a run what would stop it at its end from writing a file; "" and "-" are
// no files.
func CheckFile(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file", path)
	}
	if err := Writable(path); err != nil {
		return fmt.Errorf("%s cannot be written (%w): name a file in a folder that can be", path, cause(err))
	}
	return nil
}

// CheckFolder reports before a run what would stop it from writing into a folder; "" is none.
func CheckFolder(path string) error {
	if path == "" {
		return nil
	}
	probe := path // if there is none yet, it can be made if a file can
	switch info, err := os.Stat(path); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is no folder: name one", path)
	case err == nil:
		probe = filepath.Join(path, "latest")
	}
	if err := Writable(probe); err != nil {
		return fmt.Errorf("%s cannot be written (%w): name a folder in one that can be", path, cause(err))
	}
	return nil
}

// cause is what the system says about a path, without the path.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
