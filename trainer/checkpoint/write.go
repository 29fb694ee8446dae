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

	"github.com/weir-ml/weir/trainer/outfile"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// Save writes a checkpoint of one process: WriteShard and Commit.
func Save(dir string, state State, tensors ...safetensors.Tensor) error {
	shard, err := WriteShard(dir, state.Step, 0, 1, tensors...)
	if err != nil {
		return err
	}
	return Commit(dir, state, shard)
}

// WriteShard writes what a rank has of a checkpoint, and returns what Commit is to be told
// of it; a Shard travels between processes as JSON. Ranks may write at the same time. Until
// Commit has been called the checkpoint does not exist.
func WriteShard(dir string, step int64, rank, ranks int, tensors ...safetensors.Tensor) (Shard, error) {
	if step < 0 || rank < 0 || rank >= ranks {
		return Shard{}, fmt.Errorf("checkpoint: step %d, rank %d of %d", step, rank, ranks)
	}
	folder := filepath.Join(dir, folderOf(step))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return Shard{}, fmt.Errorf("checkpoint: %w", err)
	}
	if free, known := outfile.Free(folder); known {
		if need := safetensors.Bytes(tensors...); need > free {
			_, _ = os.Remove(folder), os.Remove(dir) // They stay where something is in them.
			return Shard{}, fmt.Errorf("%w: %s has room for %d bytes, and the tensors of rank %d have %d", ErrSpace, dir, free, rank, need)
		}
	}
	s := Shard{Rank: rank, Ranks: ranks, File: fmt.Sprintf("rank-%d-of-%d-%s.safetensors", rank, ranks, rand.Text()[:8])}
	path, sum := filepath.Join(folder, s.File), tally{Hash: sha256.New()}
	err := outfile.Write(path, func(w io.Writer) error {
		return safetensors.Write(io.MultiWriter(w, &sum), map[string]string{"format": "pt"}, tensors...)
	})
	if err != nil {
		_, _ = os.Remove(folder), os.Remove(dir) // They stay where something is in them.
		return Shard{}, fmt.Errorf("checkpoint: %w", err)
	}
	s.Bytes, s.SHA256 = sum.n, hex.EncodeToString(sum.Sum(nil))
	file, err := os.Open(path)
	if err != nil {
		return Shard{}, fmt.Errorf("checkpoint: %w", err)
	}
	defer file.Close() // It was only read.
	header, err := safetensors.NewReader(file, s.Bytes)
	if err != nil {
		return Shard{}, damaged(path, "%v", err)
	}
	for _, t := range header.Tensors() {
		s.Tensors = append(s.Tensors, Tensor{t.Name, t.DType, t.Shape})
	}
	return s, nil
}

// tally counts what goes into a hash.
type tally struct {
	hash.Hash
	n int64
}

func (t *tally) Write(p []byte) (int, error) {
	t.n += int64(len(p))
	return t.Hash.Write(p)
}

// Commit makes a checkpoint of the shards of all ranks, each of which WriteShard has
// returned, and the one that Open finds. One process calls it, on a file system that has
// the shards of all.
func Commit(dir string, state State, shards ...Shard) error {
	m := manifest{State: state, Shards: slices.SortedFunc(slices.Values(shards), func(a, b Shard) int { return a.Rank - b.Rank })}
	if err := m.check(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	folder := filepath.Join(dir, folderOf(state.Step))
	for _, s := range m.Shards {
		if err := s.there(folder); err != nil {
			return err
		}
	}
	text, err := m.encode()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	write := func(path string, text []byte) {
		if err == nil {
			err = outfile.Write(path, func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		}
	}
	write(filepath.Join(folder, manifestName), text)
	if err == nil { // The folder's own name is on the disk before latest has it.
		err = outfile.Flush(dir)
	}
	write(filepath.Join(dir, latestName), []byte(folderOf(state.Step)+"\n"))
	if err == nil { // dir may be as new as what is in it.
		err = outfile.Flush(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	m.sweep(folder)
	return nil
}

// sweep removes the shards of a step that the manifest does not name, and the temporary files
// of those that were never finished. A file that cannot be removed stays, and does no harm.
func (m *manifest) sweep(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(strings.TrimPrefix(name, "."), "rank-") && !slices.ContainsFunc(m.Shards, func(s Shard) bool { return s.File == name }) {
			_ = os.Remove(filepath.Join(folder, name))
		}
	}
}

// Prune removes, of the checkpoints of steps before the latest, all but the keep-1 newest, and
// those that were never committed; so nobody may be writing. What is there of later steps stays:
// an earlier run has left it, and nothing says that it is not wanted. So do files that are no part
// of a checkpoint, and everything in a folder in which no file names the latest.
func Prune(dir string, keep int) error {
	latest, err := latest(dir)
	if errors.Is(err, ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := outfile.Flush(dir); err != nil { // A killed Commit may not have done so.
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

// remove removes a checkpoint: its manifest first, without which it is none, then its
// shards, and what a killed writer has left of either.
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
	_ = os.Remove(folder) // It stays where something else is in it.
	return err
}
