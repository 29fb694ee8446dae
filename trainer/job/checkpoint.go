package job

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/transport/tcp"
)

// keyFlag, followed by the name of a flag, is the flag's key in the metadata of a checkpoint.
const keyFlag = "train.flag."

// checkpointEvery sets the interval between two checkpoints in o.Saver.
func (o *Options) checkpointEvery(text string) error {
	steps, noSteps := strconv.ParseInt(text, 10, 64)
	every, noTime := time.ParseDuration(text)
	switch {
	case noSteps == nil && steps > 0:
		o.Saver.Steps, o.Saver.Every = steps, 0
	case noTime == nil && every > 0:
		o.Saver.Steps, o.Saver.Every = 0, every
	default:
		return errors.New("give steps, such as 100, or a time, such as 10m")
	}
	return nil
}

// ErrForeign is returned for a checkpoint written by another program.
var ErrForeign = errors.New("is not a checkpoint of this program: name one that -checkpoint wrote")

// OpenCheckpoint opens the newest complete checkpoint of -resume, and sets the deciding flags to
// its values. It returns an error if a flag was given with another value, unless the flag is in
// free. Flags that the checkpoint lacks take their values from older. The checkpoint is nil
// without -resume, or if the folder of -resume is also that of -checkpoint and has none yet.
// passed explains why newer checkpoints were skipped. The caller closes the checkpoint.
func (o *Options) OpenCheckpoint(deciding, free []string, older map[string]string) (c *checkpoint.Checkpoint, passed, err error) {
	if o.Resume == "" {
		return nil, nil, nil
	}
	c, passed, err = checkpoint.Newest(o.Resume)
	if errors.Is(err, checkpoint.ErrNone) && o.resumesItself() {
		return nil, nil, nil // a new run begins; if it is killed, the same command resumes it
	}
	if errors.Is(err, checkpoint.ErrNone) {
		return nil, nil, fmt.Errorf("-resume: %s has no checkpoint: name a folder that -checkpoint has written, or give it as -checkpoint too, to begin in it: %w", o.Resume, atomicfile.Plain(err))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("-resume: %w", atomicfile.Plain(err))
	}
	if err := o.setFlags(c, deciding, free, older); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("-resume: %s %w", o.Resume, err), c.Close())
	}
	return c, passed, nil
}

// resumesItself reports whether the same command begins the run and resumes it.
func (o *Options) resumesItself() bool {
	return o.Checkpoint != "" && filepath.Clean(o.Resume) == filepath.Clean(o.Checkpoint)
}

// othersCheckpoints returns an error if the -checkpoint folder contains checkpoints of an earlier
// run that this run does not resume: this run would start below their steps and remove some of
// them.
func (o *Options) othersCheckpoints() error {
	if o.Checkpoint == "" {
		return nil
	}
	if from, err := os.Stat(o.Resume); err == nil { // the folder itself, or a checkpoint in it
		for _, path := range []string{o.Checkpoint, filepath.Join(o.Checkpoint, filepath.Base(o.Resume))} {
			if own, err := os.Stat(path); err == nil && os.SameFile(from, own) {
				return nil
			}
		}
	}
	all, err := checkpoint.All(o.Checkpoint)
	if err != nil || len(all) == 0 {
		return nil // writing to the folder will report the error
	}
	return fmt.Errorf("%s has checkpoints of an earlier run, up to %s: give -resume %[1]s to continue it, or name another folder", o.Checkpoint, filepath.Base(all[0]))
}

// setFlags sets the deciding flags that were not given to a checkpoint's values. It returns an error if a flag that was
// given has another value there, except for the flags in free.
func (o *Options) setFlags(c *checkpoint.Checkpoint, deciding, free []string, older map[string]string) error {
	for _, name := range deciding {
		value, ok := c.Metadata[keyFlag+name]
		if before, knows := older[name]; !ok && knows {
			value, ok = before, true
		}
		switch {
		case !ok, !o.given[name] && o.FlagSet.Set(name, value) != nil:
			return ErrForeign
		case o.given[name] && o.Value(name) != value && !slices.Contains(free, name):
			return fmt.Errorf("was trained with -%s %s, not %s: leave -%s out, or start without -resume", name, value, o.Value(name), name)
		}
	}
	return nil
}

// Due reports whether a checkpoint is written after a step: the leading process decides.
func (o *Options) Due(ctx context.Context, w *Process, step int64, last bool) (bool, error) {
	if o.Checkpoint == "" {
		return false, nil
	}
	return w.Agree(ctx, o.Saver.Due(step) || last)
}

// Save writes a checkpoint with the deciding flags, and removes old ones beyond -keep. Every process of the
// job calls it with its own pieces, which together contain every tensor exactly once. It returns
// when the checkpoint is complete, or with the error of the process that failed.
func (o *Options) Save(w *Process, state checkpoint.State, deciding []string, pieces ...checkpoint.Piece) error {
	metadata := map[string]string{} // the caller may use its map again
	maps.Copy(metadata, state.Metadata)
	for _, name := range deciding {
		metadata[keyFlag+name] = o.Value(name)
	}
	state.Metadata = metadata
	ctx, rank, ranks := context.Background(), 0, 1 // not canceled, because an interrupted run still writes its last checkpoint
	if w != nil {
		rank, ranks = w.process, w.Processes
	}
	var shard checkpoint.Shard
	write := func() (err error) {
		shard, err = checkpoint.WriteShard(o.Checkpoint, state.Step, rank, ranks, pieces...)
		shards := []checkpoint.Shard{shard}
		if err = w.share(ctx, err); err == nil && w != nil {
			err = exchangeValues(ctx, w, shard, func(_ int, theirs *checkpoint.Shard) error {
				shards = append(shards, *theirs)
				return nil
			})
		}
		if err == nil && w.Leads() {
			err = checkpoint.Commit(o.Checkpoint, state, shards...)
		}
		return err
	}
	var err error
	if o.Saver.Dir = o.Checkpoint; w.Leads() {
		err = o.Saver.SaveBy(state.Step, write)
	} else {
		err = write()
	}
	err = w.share(ctx, atomicfile.Failed(o.Checkpoint, err))
	if err != nil && !errors.As(err, new(*tcp.LostError)) { // if a process is lost, the first one may still commit
		checkpoint.Discard(o.Checkpoint, state.Step, shard)
		_ = w.share(ctx, nil) // no process begins the next checkpoint before this; the error is already known
	}
	return err
}

// CheckCheckpoint returns an error unless all processes of the job share the -checkpoint folder:
// each writes a file there, and the leader looks for all of the files.
func (o *Options) CheckCheckpoint(ctx context.Context, w *Process) error {
	if w == nil || o.Checkpoint == "" {
		return nil
	}
	var token string
	if w.Leads() {
		token = rand.Text()
	}
	err := exchangeValues(ctx, w, token, func(_ int, theirs *string) error {
		token = cmp.Or(token, *theirs)
		return nil
	})
	if err != nil {
		return err
	}
	probe := func(process int) string {
		return filepath.Join(o.Checkpoint, fmt.Sprintf(".weir-%s-%d", token, process))
	}
	_, missing := os.Stat(o.Checkpoint)
	err = atomicfile.Failed(o.Checkpoint, os.MkdirAll(o.Checkpoint, 0o777))
	if err == nil {
		err = atomicfile.Failed(o.Checkpoint, os.WriteFile(probe(w.process), nil, 0o666))
	}
	if err = w.share(ctx, err); err == nil && w.Leads() {
		for process := range w.Processes {
			if _, gone := os.Stat(probe(process)); gone != nil && err == nil {
				err = fmt.Errorf("-checkpoint: process 0 does not see what process %d writes to %s: name a folder that all processes share", process, o.Checkpoint)
			}
		}
	}
	err = w.share(ctx, err)
	_ = os.Remove(probe(w.process)) // an empty file does no harm
	if missing != nil {
		_ = os.Remove(o.Checkpoint) // a folder that is not empty stays
	}
	return err
}

// Tensor is a tensor of a checkpoint on the device of one rank: a weight or a moment of the
// optimizer. The Buffer holds all elements, or one replica's elements, starting at First.
type Tensor struct {
	Name   string
	Shape  []int // of the whole tensor
	First  int
	Rank   int
	Device kernels.Device
	Buffer kernels.Buffer
}

func (t *Tensor) read() ([]float32, error) {
	values := make([]float32, t.Buffer.N)
	return values, t.Device.ReadFloat32(values, t.Buffer)
}

// SHA256 returns the hash of the tensors' elements, as little-endian float32. The tensors are
// those of all processes, in the same order in each process. Each process hashes its own tensors,
// and sends the state of the hash to the process with the next tensor. Every process gets the
// result.
func (w *Process) SHA256(tensors []Tensor) (string, error) {
	sum, ctx, fault := sha256.New(), context.Background(), error(nil)
	for i, t := range tensors {
		if w.Has(t.Rank) {
			values, err := t.read()
			fault = cmp.Or(fault, err)
			_ = binary.Write(sum, binary.LittleEndian, values) // hash.Hash never returns an error
		}
		if i+1 < len(tensors) && w.processOf(tensors[i+1].Rank) == w.processOf(t.Rank) || w == nil {
			continue
		}
		var state []byte
		if w.Has(t.Rank) {
			state, _ = sum.(encoding.BinaryMarshaler).MarshalBinary() // sha256 never returns an error
		}
		err := exchangeValues(ctx, w, state, func(_ int, theirs *[]byte) error {
			if len(*theirs) == 0 {
				return nil
			}
			return sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(*theirs)
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), w.share(ctx, fault)
}

// Stored returns the tensors on this process's ranks, as pieces of a checkpoint.
func (w *Process) Stored(tensors []Tensor) (stored []checkpoint.Piece) {
	for _, t := range tensors {
		if w.Has(t.Rank) {
			stored = append(stored, checkpoint.Range(t.Name, t.Shape, t.First, t.Buffer.N, t.read))
		}
	}
	return stored
}

// Restore sets the tensors on this process's ranks to their values in a checkpoint.
func (w *Process) Restore(c *checkpoint.Checkpoint, tensors []Tensor) error {
	for _, t := range tensors {
		if !w.Has(t.Rank) || t.Buffer.N == 0 { // a replica that owns no part of the tensor
			continue
		}
		values := make([]float32, t.Buffer.N)
		if err := checkpoint.ReadRange(c, t.Name, t.Shape, t.First, values); err != nil {
			return err
		}
		if err := t.Device.WriteFloat32(t.Buffer, values); err != nil {
			return err
		}
	}
	return nil
}
