package checkpoint

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// Save writes a checkpoint of one process with WriteShard and Commit. If either fails, Save discards the shard.
func Save(dir string, state State, tensors ...safetensors.Tensor) error {
	shard, err := WriteShard(dir, state.Step, 0, 1, Whole(tensors...)...)
	if err == nil {
		err = Commit(dir, state, shard)
	}
	if err != nil {
		Discard(dir, state.Step, shard)
	}
	return err
}

// Discard removes this rank's shard of a failed checkpoint, so that it takes no space from the next one, and
// removes the folders if they are empty. During the call and later, no rank may write or commit this attempt at
// the checkpoint. The shard stays if a manifest names it, or if the manifest cannot be read. The zero Shard,
// which WriteShard returns with an error, has no file.
func Discard(dir string, step int64, shard Shard) {
	folder := filepath.Join(dir, folderOf(step))
	m, err := readManifest(folder)
	named := err == nil && slices.ContainsFunc(m.Shards, func(s Shard) bool { return s.File == shard.File })
	if shard.File != "" && !named && (err == nil || errors.Is(err, ErrNone)) {
		_ = os.Remove(filepath.Join(folder, shard.File)) // a shard that stays only takes space
	}
	_, _ = os.Remove(folder), os.Remove(dir) // both stay if they are not empty
}

// Piece is a tensor to write, or consecutive elements of one.
type Piece struct {
	values safetensors.Tensor
	of     Tensor // zero for a whole tensor; DType is not set, because the values have one
}

// Whole returns tensors as pieces of a shard.
func Whole(tensors ...safetensors.Tensor) []Piece {
	pieces := make([]Piece, len(tensors))
	for i, t := range tensors {
		pieces[i].values = t
	}
	return pieces
}

// Range returns a piece with count elements, at least one, of a tensor with the given shape, starting at
// element first. load returns the values, as for safetensors.Load.
func Range[T safetensors.Element](name string, shape []int, first, count int, load func() ([]T, error)) Piece {
	of := Tensor{Name: name, Shape: shape, First: first, Count: count}
	if n, ok := of.elements(); ok && first == 0 && count == n {
		return Piece{values: safetensors.Load(name, shape, load)}
	}
	return Piece{safetensors.Load(of.stored(), []int{count}, load), of}
}

// WriteShard writes a rank's part of a checkpoint, and returns its description for Commit. A Shard can be sent
// between processes as JSON. Ranks may write concurrently. The checkpoint does not exist until Commit, which
// requires that the shards together contain every element of each tensor exactly once.
func WriteShard(dir string, step int64, rank, ranks int, pieces ...Piece) (Shard, error) {
	tensors, ranges := make([]safetensors.Tensor, len(pieces)), map[string]Tensor{}
	for i, p := range pieces {
		tensors[i] = p.values
		if p.of.Count > 0 {
			ranges[p.of.stored()] = p.of
		}
	}
	if step < 0 || rank < 0 || rank >= ranks {
		return Shard{}, fmt.Errorf("checkpoint: step %d, rank %d of %d", step, rank, ranks)
	}
	folder := filepath.Join(dir, folderOf(step))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return Shard{}, fmt.Errorf("checkpoint: %w", err)
	}
	if free, known := atomicfile.Free(folder); known {
		if need := safetensors.Bytes(tensors...); need > free {
			return Shard{}, fmt.Errorf("%w: %s has room for %d bytes, and the tensors of rank %d have %d", ErrSpace, dir, free, rank, need)
		}
	}
	s := Shard{Rank: rank, Ranks: ranks, File: fmt.Sprintf("rank-%d-of-%d-%s.safetensors", rank, ranks, rand.Text()[:8])}
	path, sum := filepath.Join(folder, s.File), tally{Hash: sha256.New()}
	err := atomicfile.Write(path, func(w io.Writer) error {
		return safetensors.Write(io.MultiWriter(w, &sum), map[string]string{"format": "pt"}, tensors...)
	})
	if err != nil {
		return Shard{}, fmt.Errorf("checkpoint: %w", err)
	}
	s.Bytes, s.SHA256 = sum.n, hex.EncodeToString(sum.Sum(nil))
	file, err := os.Open(path)
	if err != nil {
		return Shard{}, fmt.Errorf("checkpoint: %w", err)
	}
	defer file.Close() // the file was only read
	header, err := safetensors.NewReader(file, s.Bytes)
	if err != nil {
		return Shard{}, damaged(path, "%v", err)
	}
	for _, t := range header.Tensors() {
		described := Tensor{Name: t.Name, Shape: t.Shape}
		if of, ok := ranges[t.Name]; ok {
			described = of
		}
		described.DType = t.DType
		s.Tensors = append(s.Tensors, described)
	}
	return s, nil
}

// tally counts the bytes written to a hash.
type tally struct {
	hash.Hash
	n int64
}

func (t *tally) Write(p []byte) (int, error) {
	t.n += int64(len(p))
	return t.Hash.Write(p)
}

// Commit combines the shards of all ranks, as returned by WriteShard, into a checkpoint, and
// makes it the latest. One process calls it; all shards must be on a file system that it sees.
func Commit(dir string, state State, shards ...Shard) error {
	m := manifest{State: state, Shards: slices.SortedFunc(slices.Values(shards), func(a, b Shard) int { return a.Rank - b.Rank })}
	if err := m.check(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	folder := filepath.Join(dir, folderOf(state.Step))
	for _, s := range m.Shards {
		if err := s.checkFile(folder); err != nil {
			return err
		}
	}
	text, err := m.encode()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	write := func(path string, text []byte) {
		if err == nil {
			err = atomicfile.Write(path, func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		}
	}
	write(filepath.Join(folder, manifestName), text)
	if err == nil { // flush the folder's own name before latest refers to it
		err = atomicfile.Flush(dir)
	}
	write(filepath.Join(dir, latestName), []byte(folderOf(state.Step)+"\n"))
	if err == nil { // dir may be new too
		err = atomicfile.Flush(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	m.sweep(folder)
	return nil
}

// sweep removes a step's shards that the manifest does not name, and temporary files of killed
// writers. A file that cannot be removed stays, but does no harm.
func (m *manifest) sweep(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(strings.TrimPrefix(name, "."), "rank-") && !slices.ContainsFunc(m.Shards, func(s Shard) bool { return s.File == name }) {
			_ = os.Remove(filepath.Join(folder, name))
		}
	}
}

// Prune keeps the latest checkpoint and the keep-1 newest ones before it, and removes the others
// of earlier steps, and incomplete ones. No checkpoint may be written during the call. Checkpoints of later
// steps stay, because an earlier run may have written them. So do files that are not part of a
// checkpoint, and everything in a folder without a file that names the latest.
func Prune(dir string, keep int) error {
	latest, err := latest(dir)
	if errors.Is(err, ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := atomicfile.Flush(dir); err != nil { // a killed Commit may not have flushed it
		return fmt.Errorf("checkpoint: %w", err)
	}
	entries, err := os.ReadDir(dir)
	keep = max(keep, 1)
	for _, entry := range slices.Backward(entries) { // the latest step first
		folder := filepath.Join(dir, entry.Name())
		if !entry.IsDir() || !isFolder(entry.Name()) || entry.Name() > latest {
			continue
		}
		if _, e := os.Stat(filepath.Join(folder, manifestName)); e == nil && keep > 0 {
			keep--
			continue
		}
		err = errors.Join(err, remove(folder))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// remove removes a checkpoint: its manifest first, without which it is not a checkpoint, then
// its shards, and the files of killed writers.
func remove(folder string) error {
	err := os.Remove(filepath.Join(folder, manifestName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if name := strings.TrimPrefix(entry.Name(), "."); strings.HasPrefix(name, "rank-") || strings.HasPrefix(name, manifestName) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, entry.Name())))
		}
	}
	_ = os.Remove(folder) // the folder stays if it contains other files
	return err
}
