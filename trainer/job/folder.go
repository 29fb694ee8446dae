package job

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/metrics"
)

// Folder is the folder of a run: the memory log and the losses, written during the run, and the
// page, written at its end. In processes that do not lead, the Folder is nil.
type Folder struct {
	Path   string
	Memory *atomicfile.Stream
	Losses *atomicfile.Stream
	Page   string // path of the page
	made   bool   // whether this run created it
}

// OpenFolder opens the files of a run in the folder of -run, or in a new one under runs/ named after now. They must
// not exist, except if the run resumes itself, because -resume and -checkpoint name the same folder: then
// OpenFolder moves the files of the earlier attempt into a new subfolder.
func (o *Options) OpenFolder(now time.Time) (f *Folder, err error) {
	f = &Folder{Path: o.Folder, made: true}
	if f.Path == "" {
		f.Path, err = atomicfile.NewFolder("runs", now)
	} else {
		_, missing := os.Stat(f.Path)
		f.made = errors.Is(missing, os.ErrNotExist)
		err = os.MkdirAll(f.Path, 0o777)
		if err == nil && o.resumesItself() {
			err = atomicfile.SetAside(f.Path, "memory.jsonl", "losses.csv", "report.html", "failure.rank")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("run folder: %w: name a folder that can be made with -run", atomicfile.Plain(err))
	}
	f.Page = filepath.Join(f.Path, "report.html")
	if _, exists := os.Lstat(f.Page); exists == nil {
		err = fmt.Errorf("%s exists: name another folder with -run", f.Page)
	}
	open := func(name string) (s *atomicfile.Stream) {
		if err != nil {
			return nil
		}
		s, err = atomicfile.NewStream(filepath.Join(f.Path, name))
		if at, is := errors.AsType[*fs.PathError](err); is && errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s exists: name another folder with -run", at.Path)
		}
		return s
	}
	f.Memory, f.Losses = open("memory.jsonl"), open("losses.csv")
	if err == nil {
		_, err = io.WriteString(f.Losses, "step,bytes,loss_train,grad_norm,learning_rate,seconds,loss_heldout,standard_error\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run folder: %w", atomicfile.Plain(err)), f.Discard())
	}
	return f, nil
}

// Line is a line of losses.csv: a training step.
type Line struct {
	Step               int
	Tokens             int64   // number of tokens with a weight
	Loss               float64 // per token
	Norm, LearningRate float64
	Took               time.Duration
	Score              metrics.Score // the evaluation, if there was one
}

// Step adds a line to the losses and writes the log so far.
func (f *Folder) Step(l Line) error {
	if f == nil {
		return nil
	}
	fmt.Fprintf(f.Losses, "%d,%d,%s,%s,%s,%.3f,", l.Step, l.Tokens, decimal(l.Loss), decimal(l.Norm), decimal(l.LearningRate), l.Took.Seconds())
	return f.endLine(l.Score)
}

// Start adds a line for the weights before the first step, and writes the log so far, so that the
// memory plan is on disk if the run dies in that step.
func (f *Folder) Start(s metrics.Score) error {
	if f == nil {
		return nil
	}
	fmt.Fprintf(f.Losses, "%d,,,,,,", s.Step)
	return f.endLine(s)
}

// endLine writes the columns of an evaluation, which are empty if there was none. The stream
// keeps its first error until it is flushed.
func (f *Folder) endLine(s metrics.Score) error {
	if s.Known {
		fmt.Fprintf(f.Losses, "%s,%s\n", decimal(s.Loss), decimal(s.Standard))
	} else {
		fmt.Fprint(f.Losses, ",\n")
	}
	return errors.Join(f.Memory.Flush(), f.Losses.Flush())
}

// decimal formats a float32 as the shortest decimal that represents it exactly.
func decimal(x float64) string { return strconv.FormatFloat(x, 'g', -1, 32) }

// Finish completes all files and writes the page. If an error leaves the folder empty, Finish removes it.
func (f *Folder) Finish(page func(io.Writer) error) error {
	err := errors.Join(f.Memory.Finish(), f.Losses.Finish(), atomicfile.Failed(f.Page, atomicfile.Write(f.Page, page)))
	if err != nil {
		f.remove()
	}
	return err
}

// Discard removes the files of the run.
func (f *Folder) Discard() error {
	var faults []error
	for _, s := range []*atomicfile.Stream{f.Memory, f.Losses} {
		if s != nil {
			faults = append(faults, s.Discard())
		}
	}
	f.remove()
	return errors.Join(faults...)
}

// remove removes the folder if this run created it and it is empty.
func (f *Folder) remove() {
	if f.made {
		_ = os.Remove(f.Path)
	}
}
