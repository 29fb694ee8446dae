package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Write replaces the file at path with the output of write, as Replace does, but follows links. It does not
// replace standard output or standard error given by name, pipes, devices or other special files: it writes to
// them directly. Write returns the errors of write, and those of the system with the name of the file.
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

// Standard returns standard output or standard error if path refers to it, as /dev/stdout does,
// and otherwise nil. If output is redirected to a file, replacing that file or opening it again
// would lose output.
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

// Regular returns the name of the file that path refers to, or would refer to if it existed. is
// is false if path refers to something other than a regular file or to a file that no longer has
// a name, and if the system does not allow looking it up.
func Regular(path string) (target string, is bool) {
	target = path
	for range 40 { // the limit of Linux
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

// Plain removes the name of the system call from an error about a path, and adds a remedy if the process has too
// many open files.
func Plain(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", at.Path, diagnostic.Limit(at.Err))
	}
	return diagnostic.Limit(err)
}

// CheckFile is called before a run, and returns the error that would prevent writing the file at
// path at the end of the run. It returns nil for "" and "-", which are not files.
func CheckFile(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file", path)
	}
	if err := Writable(path); err != nil {
		return fmt.Errorf("%s cannot be written (%w): name a file in a writable folder", path, cause(err))
	}
	return nil
}

// CheckFolder is called before a run, and returns the error that would prevent writing into the
// folder at path. It returns nil for "".
func CheckFolder(path string) error {
	if path == "" {
		return nil
	}
	probe := path // a missing folder can be created if a file can
	switch info, err := os.Stat(path); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a folder: name one", path)
	case err == nil:
		probe = filepath.Join(path, "latest")
	}
	if err := Writable(probe); err != nil {
		return fmt.Errorf("%s cannot be written (%w): name a folder in a writable folder", path, cause(err))
	}
	return nil
}

// cause returns the system's error about a path, without the path. It returns other errors unchanged.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	if at, ok := errors.AsType[*os.LinkError](err); ok {
		return at.Err
	}
	return err
}
