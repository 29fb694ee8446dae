package leaks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

const mib = 1 << 20

// training is a step of a pipeline stage on a simulated allocator: forwards and backwards of
// 1F1B, layers that save tensors for their backward, and a loss.
type training struct {
	t        *testing.T
	a        *cachingsim.Allocator
	inFlight [][]int64 // saved blocks of every microbatch without a backward so far
}

// stacks caches call stacks, so that a line always has the same stack, as PyTorch records it.
var stacks = map[string][]snapshot.Frame{}

func stack(file, name string, line int) []snapshot.Frame {
	if stacks[file+name] == nil {
		stacks[file+name] = []snapshot.Frame{
			{Name: "c10::cuda::CUDACachingAllocator::malloc", Filename: "??"},
			{Name: "at::empty", Filename: "/build/torch/aten/Empty.cpp", Line: 7},
			{Name: "linear", Filename: "/usr/lib/python3/dist-packages/torch/nn/functional.py", Line: 125},
			{Name: name, Filename: "/home/me/model/" + file, Line: line},
			{Name: "_PyEval_EvalFrameDefault", Filename: "ceval.c"},
			{Name: "train_step", Filename: "/home/me/train.py", Line: 88},
		}
	}
	return stacks[file+name]
}

var (
	embedding = stack("embedding.py", "forward", 12)
	attention = stack("attention.py", "forward", 104)
	mlp       = stack("mlp.py", "forward", 33)
	logits    = stack("loss.py", "cross_entropy", 31)
	gradient  = stack("functional.py", "backward", 51)
	weights   = stack("model.py", "__init__", 9)
	rope      = stack("rope.py", "get_table", 20)
)

func (s *training) malloc(bytes int64, frames []snapshot.Frame) int64 {
	address, err := s.a.Malloc(cachingsim.Request{Bytes: bytes, Frames: frames})
	require.NoError(s.t, err)
	return address
}

func (s *training) free(addresses ...int64) {
	for _, address := range addresses {
		require.NoError(s.t, s.a.Free(address))
	}
}

// guard decides whether a microbatch forgets to free the block of a site.
type guard func(site []snapshot.Frame, microbatch, layer int) (forgets bool)

// train allocates the weights of four layers and runs a number of microbatches, with at most depth in flight.
func (s *training) train(microbatches, depth int, forget guard) {
	for range 4 {
		s.malloc(64*mib, weights)
	}
	for mb := range microbatches {
		s.forward(mb, forget)
		if len(s.inFlight) == depth {
			s.backward()
		}
	}
	for len(s.inFlight) > 0 {
		s.backward()
	}
}

func (s *training) forward(mb int, forget guard) {
	var saved []int64
	save := func(layer int, bytes int64, site []snapshot.Frame) {
		address := s.malloc(bytes, site)
		if !forget(site, mb, layer) {
			saved = append(saved, address)
		}
	}
	save(0, 16*mib, embedding)
	for layer := range 4 {
		save(layer, 24*mib, attention)
		scratch := s.malloc(40*mib, mlp)
		save(layer, 12*mib, mlp)
		s.free(scratch)
	}
	save(0, 164*mib, logits)
	s.inFlight = append(s.inFlight, saved)
}

func (s *training) backward() {
	saved := s.inFlight[0]
	s.inFlight = s.inFlight[1:]
	for i := len(saved) - 1; i >= 0; i-- {
		g := s.malloc(16*mib, gradient)
		s.free(saved[i], g)
	}
}

func newTraining(t *testing.T, expandable bool) *training {
	return &training{t: t, a: cachingsim.New(cachingsim.Config{Expandable: expandable, History: true})}
}
