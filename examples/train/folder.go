package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/outfile"
)

// folder is the run folder: the memory log and the losses, which are written as
// the run goes on, and the page at its end.
type folder struct {
	path   string
	made   bool // by this run
	memory *outfile.Stream
	losses *outfile.Stream
	page   string // path of the page
}

// openFolder makes the run folder, a new one under runs/ where path is empty, and
// opens its files. now names a new one.
func openFolder(path string, now time.Time) (*folder, error) {
	f := &folder{path: path}
	if err := f.make(now); err != nil {
		return nil, err
	}
	f.page = filepath.Join(f.path, "report.html")
	var err error
	if _, exists := os.Lstat(f.page); exists == nil {
		err = fmt.Errorf("%s exists: name another folder with -run", f.page)
	}
	if err == nil {
		f.memory, err = newStream(filepath.Join(f.path, "memory.jsonl"))
	}
	if err == nil {
		f.losses, err = newStream(filepath.Join(f.path, "losses.csv"))
	}
	if err == nil {
		_, err = io.WriteString(f.losses, "step,bytes,loss_train,grad_norm,learning_rate,seconds,loss_heldout,standard_error\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run folder: %w", err), f.discard())
	}
	return f, nil
}

// make makes the folder itself.
func (f *folder) make(now time.Time) error {
	if f.path != "" {
		_, err := os.Stat(f.path)
		f.made = errors.Is(err, os.ErrNotExist)
		if err := os.MkdirAll(f.path, 0o777); err != nil {
			return fmt.Errorf("run folder: %w: name a folder that can be made with -run", outfile.Plain(err))
		}
		return nil
	}
	var err error
	if f.path, err = outfile.NewFolder("runs", now); err != nil {
		return fmt.Errorf("run folder: %w: name a folder that can be made with -run", outfile.Plain(err))
	}
	f.made = true
	return nil
}

// newStream creates a file of the folder.
func newStream(path string) (*outfile.Stream, error) {
	s, err := outfile.NewStream(path)
	if at, is := errors.AsType[*fs.PathError](err); is && errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists: name another folder with -run", at.Path)
	}
	return s, outfile.Plain(err)
}

// line is a line of losses.csv: a training step.
type line struct {
	step       int
	bytes      int64   // with a weight
	nats       float64 // per byte
	norm, rate float64
	took       time.Duration
	score      metrics.Score // where there was an evaluation
}

// step adds a line to the losses and writes what has been logged so far.
func (f *folder) step(l line) error {
	if f == nil {
		return nil
	}
	fmt.Fprintf(f.losses, "%d,%d,%s,%s,%s,%.3f,", l.step, l.bytes, number(l.nats), number(l.norm), number(l.rate), l.took.Seconds())
	return f.endLine(l.score)
}

// start adds the line of the weights before the first step and writes what has been
// logged so far: a run that does not survive that step has the plan of its memory there.
func (f *folder) start(s metrics.Score) error {
	if f == nil {
		return nil
	}
	fmt.Fprintf(f.losses, "%d,,,,,,", s.Step)
	return f.endLine(s)
}

// endLine writes the columns of an evaluation, empty where there was none. The
// stream keeps its first error until the flush.
func (f *folder) endLine(s metrics.Score) error {
	if s.Known {
		fmt.Fprintf(f.losses, "%s,%s\n", number(s.Loss), number(s.Standard))
	} else {
		fmt.Fprint(f.losses, ",\n")
	}
	return errors.Join(f.memory.Flush(), f.losses.Flush())
}

// number writes the shortest decimal that is exact for a float32.
func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 32) }

// finish makes every file whole and writes the page. If nothing could be written, the
// folder is removed.
func (f *folder) finish(page func(io.Writer) error) error {
	err := errors.Join(f.memory.Finish(), f.losses.Finish(), writeFile(f.page, page))
	if err != nil && f.made {
		_ = os.Remove(f.path) // It stays where something is in it.
	}
	return err
}

// discard removes what the run has written.
func (f *folder) discard() error {
	var faults []error
	for _, s := range []*outfile.Stream{f.memory, f.losses} {
		if s != nil {
			faults = append(faults, s.Discard())
		}
	}
	if f.made {
		_ = os.Remove(f.path) // It stays where something is in it.
	}
	return errors.Join(faults...)
}

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

// writableFolder says before a run what would stop it from writing into a folder.
func writableFolder(flag, path string) error {
	if path == "" {
		return nil
	}
	probe := path // where there is none yet, it can be made where a file can
	switch info, err := os.Stat(path); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("-%s: %s is no folder: name one", flag, path)
	case err == nil:
		probe = filepath.Join(path, "latest")
	}
	if err := outfile.Writable(probe); err != nil {
		return fmt.Errorf("-%s: %s cannot be written (%w): name a folder in one that can be", flag, path, cause(err))
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
