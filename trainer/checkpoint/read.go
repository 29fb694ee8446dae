package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/trainer/safetensors"
)

var (
	// ErrNone is returned if there is no checkpoint.
	ErrNone = errors.New("checkpoint: there is none")

	// ErrDamaged is returned for a checkpoint with a missing file, or with a file that was
	// changed after it was written.
	ErrDamaged = errors.New("checkpoint: damaged")

	// ErrVersion is returned for a checkpoint in another version of the format.
	ErrVersion = errors.New("checkpoint: another version of the format")

	// ErrTensor is returned for a tensor that the checkpoint does not contain or stores with
	// another shape or type, and for elements that the tensor does not have.
	ErrTensor = errors.New("checkpoint: no such tensor")

	// ErrSpace is returned, before a shard is written, if it does not fit on the disk.
	ErrSpace = errors.New("checkpoint: not enough space")
)

func damaged(path, format string, args ...any) error {
	return diagnostic.Errorf(ErrDamaged, "%s: %s: copy it again, or use an earlier one", path, fmt.Sprintf(format, args...))
}

const folderPrefix = "step-"

// folderOf returns the name of a step's checkpoint.
func folderOf(step int64) string { return fmt.Sprintf("%s%010d", folderPrefix, step) }

// isFolder reports whether a name can be the name of a checkpoint.
func isFolder(name string) bool {
	digits, ok := strings.CutPrefix(name, folderPrefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// latest returns the name of the current checkpoint. Its error wraps ErrNone if the file latest
// does not exist.
func latest(dir string) (string, error) {
	path := filepath.Join(dir, latestName)
	text, err := read(path, 64)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w in %s: it has no file %q", ErrNone, dir, latestName)
	}
	if err != nil {
		return "", err
	}
	name, ended := strings.CutSuffix(string(text), "\n")
	if !ended || !isFolder(name) {
		return "", damaged(path, "it says %.40q, expected the name of a folder", text)
	}
	return name, nil
}

// read returns the contents of a file, which must not exceed most bytes.
func read(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	defer file.Close() // the file was only read, so the error does not matter
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if int64(len(text)) > most {
		return nil, damaged(path, "it has more than %d bytes", most)
	}
	return text, nil
}

// Checkpoint is an open checkpoint. The caller must close it. Its methods may be called
// concurrently.
type Checkpoint struct {
	State
	Path    string             // the folder of the manifest
	tensors []Tensor           // whole, in the order of the shards
	pieces  map[string][]piece // by the tensor's name, in ascending order of First
	shards  []*shard
}

// piece is a tensor or a piece of one, with the shard that stores it.
type piece struct {
	Tensor
	in *shard
}

// shard is a shard and its file, which is opened and verified before the first tensor is read
// from it.
type shard struct {
	Shard
	path   string
	once   sync.Once
	file   *safetensors.Reader
	closer io.Closer
	err    error
}

// Open opens the latest checkpoint in a folder, or the checkpoint that path names. If no file names the latest
// checkpoint, Open opens the last step's. It reads the manifest, and checks that the shards exist and have the
// right sizes. Open treats a file in the safetensors format as a checkpoint of step 0 with the file's metadata,
// and immediately verifies its digest if it has one.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	case err != nil:
		return nil, fmt.Errorf("checkpoint: %w", err)
	case !info.IsDir():
		return openFile(path)
	}
	folder := path
	if _, err := os.Lstat(filepath.Join(path, manifestName)); err != nil {
		all, err := All(path)
		if err == nil {
			_, err = latest(path)
		}
		if err != nil && (len(all) == 0 || !errors.Is(err, ErrNone)) {
			return nil, err
		}
		folder = all[0]
	}
	m, err := readManifest(folder)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{State: m.State, Path: folder, pieces: map[string][]piece{}}
	for _, s := range m.Shards {
		if err := s.checkFile(folder); err != nil {
			return nil, err
		}
		c.add(&shard{Shard: s, path: filepath.Join(folder, s.File)})
	}
	return c, nil
}

// All returns the checkpoints in a folder, newest first: the latest, and those of earlier
// steps, damaged ones included. If the file that names the latest is missing or damaged, it
// returns all of them. The error wraps ErrNone if that file is missing and there are no
// checkpoints.
func All(dir string) (paths []string, err error) {
	last, missing := latest(dir)
	if missing != nil && !errors.Is(missing, ErrDamaged) && !errors.Is(missing, ErrNone) {
		return nil, missing
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if last != "" { // even if it does not exist
		paths = append(paths, filepath.Join(dir, last))
	}
	for _, entry := range slices.Backward(entries) {
		if entry.IsDir() && isFolder(entry.Name()) && (last == "" || entry.Name() < last) {
			path := filepath.Join(dir, entry.Name())
			if _, err := os.Lstat(filepath.Join(path, manifestName)); err == nil {
				paths = append(paths, path)
			}
		}
	}
	if len(paths) == 0 && errors.Is(missing, ErrNone) {
		return nil, missing
	}
	return paths, nil
}

// Newest opens the newest readable checkpoint in a folder: the latest, or, if that is damaged or cannot be read,
// the one before it, and so on. It verifies every shard. passed joins the errors of the checkpoints that it
// skipped; if it finds none to open, err does. Newest opens any other path as Open does.
func Newest(path string) (c *Checkpoint, passed, err error) {
	all, err := All(path)
	if err != nil || len(all) == 0 {
		c, err = Open(path)
		return c, nil, err
	}
	for _, one := range all {
		c, err = Open(one)
		if errors.Is(err, ErrNone) { // although the folder's latest file names it
			err = damaged(one, "it is missing")
		}
		if err == nil {
			if err = c.Verify(); err == nil {
				return c, passed, nil
			}
			err = errors.Join(err, c.Close())
		}
		passed = errors.Join(passed, err)
	}
	return nil, nil, passed
}

// openFile opens a file in the safetensors format.
func openFile(path string) (*Checkpoint, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		if errors.Is(err, safetensors.ErrCorrupt) {
			err = diagnostic.Errorf(ErrDamaged, "%w", err)
		}
		return nil, err
	}
	c := &Checkpoint{State: State{Metadata: file.Metadata()}, Path: path, pieces: map[string][]piece{}}
	s := &shard{path: path, file: file.Reader, closer: file}
	if info, err := os.Stat(path); err == nil {
		s.Bytes = info.Size()
	}
	s.once.Do(func() {}) // it is already open
	for _, t := range file.Tensors() {
		s.Tensors = append(s.Tensors, Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape})
	}
	c.add(s)
	return c, nil
}

func (c *Checkpoint) add(s *shard) {
	c.shards = append(c.shards, s)
	for _, t := range s.Tensors {
		if len(c.pieces[t.Name]) == 0 {
			c.tensors = append(c.tensors, Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape})
		}
		pieces := append(c.pieces[t.Name], piece{t, s})
		slices.SortFunc(pieces, func(a, b piece) int { return a.First - b.First })
		c.pieces[t.Name] = pieces
	}
}

// checkFile returns an error if the shard's file is missing, is not a regular file, or has the wrong size.
func (s *Shard) checkFile(folder string) error {
	path := filepath.Join(folder, s.File)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return damaged(path, "it is missing")
	case err != nil:
		return fmt.Errorf("checkpoint: %w", err)
	case !info.Mode().IsRegular():
		return damaged(path, "it is not a file")
	case info.Size() != s.Bytes:
		return damaged(path, "it has %d bytes, the manifest says %d", info.Size(), s.Bytes)
	}
	return nil
}

// open opens the file and verifies its checksum, once.
func (s *shard) open() (*safetensors.Reader, error) {
	s.once.Do(func() {
		file, err := os.Open(s.path)
		if err != nil {
			s.err = fmt.Errorf("checkpoint: %w", err)
			return
		}
		s.closer = file
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(file, 0, s.Bytes)); err != nil {
			s.err = fmt.Errorf("checkpoint: %w", err)
		} else if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
			s.err = damaged(s.path, "its SHA-256 is %s, the manifest says %s", got, s.SHA256)
		} else if s.file, err = safetensors.NewReader(file, s.Bytes); err != nil {
			s.err = damaged(s.path, "%v", err)
		}
	})
	return s.file, s.err
}

// Tensors describes the whole tensors of the checkpoint, in the order of its shards.
func (c *Checkpoint) Tensors() []Tensor { return slices.Clone(c.tensors) }

// Shards returns the number of files of the checkpoint.
func (c *Checkpoint) Shards() int { return len(c.shards) }

// Bytes returns the total size of the shards.
func (c *Checkpoint) Bytes() (n int64) {
	for _, s := range c.shards {
		n += s.Bytes
	}
	return n
}

// Read reads the whole tensor with the given name and shape into dst, which must have as many elements.
func Read[T safetensors.Element](c *Checkpoint, name string, shape []int, dst []T) error {
	whole := Tensor{Shape: shape}
	if n, ok := whole.elements(); !ok || n != len(dst) {
		return fmt.Errorf("%w: %.80q with the shape %v does not have the %d elements that were requested", ErrTensor, name, shape, len(dst))
	}
	return ReadRange(c, name, shape, 0, dst)
}

// ReadRange reads elements of a tensor with the given shape into dst, starting at element first.
// It opens only the shards that contain some of these elements.
func ReadRange[T safetensors.Element](c *Checkpoint, name string, shape []int, first int, dst []T) error {
	pieces := c.pieces[name]
	if len(pieces) == 0 {
		return fmt.Errorf("%w: %.80q is not in %s", ErrTensor, name, c.Path)
	}
	if whole := &pieces[0]; !slices.Equal(whole.Shape, shape) {
		return fmt.Errorf("%w: %.80q has the shape %v, not %v", ErrTensor, name, whole.Shape, shape)
	}
	if end := pieces[len(pieces)-1].end(); first < 0 || first > end-len(dst) {
		return fmt.Errorf("%w: %.80q has %d elements, not %d from %d on", ErrTensor, name, end, len(dst), first)
	}
	for _, p := range pieces {
		if from, to := max(first, p.First), min(first+len(dst), p.end()); from < to {
			if err := readPiece(&p, from-p.First, dst[from-first:to-first]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPiece reads elements of a piece into dst, starting at element from of the piece.
func readPiece[T safetensors.Element](p *piece, from int, dst []T) error {
	file, err := p.in.open()
	if err != nil {
		return err
	}
	switch err := safetensors.ReadRange(file, p.stored(), from, dst); {
	case errors.Is(err, safetensors.ErrTensor):
		return fmt.Errorf("%w: %w", ErrTensor, err)
	case errors.Is(err, safetensors.ErrCorrupt):
		return damaged(p.in.path, "%v", err)
	default:
		return err
	}
}

// Verify checks every shard against its checksum, and reports all damaged shards. A file that is itself in the
// safetensors format was checked by Open.
func (c *Checkpoint) Verify() error {
	var faults []error
	for _, s := range c.shards {
		_, err := s.open()
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Close closes the files. The checkpoint must not be used afterwards.
func (c *Checkpoint) Close() error {
	var faults []error
	for _, s := range c.shards {
		s.once.Do(func() { s.err = os.ErrClosed })
		if s.closer != nil {
			faults = append(faults, s.closer.Close())
		}
	}
	return errors.Join(faults...)
}
