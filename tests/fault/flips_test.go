package fault_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// The tests in this file flip a bit in every place in which a job keeps or moves numbers. Many jobs run at the same
// time, because a job whose frames were hit waits until a connection has been silent for too long.

// wire is a network of Unix sockets that flips one bit of the bytes that are written to it.
type wire struct{ left atomic.Int64 } // number of bits until the flip; very large before the network is armed and after the flip

const far = 1 << 60

type wired struct {
	net.Conn
	wire *wire
}

func (w *wire) Listen(address string) (net.Listener, error) {
	l, err := net.Listen("unix", strings.TrimPrefix(address, "unix:"))
	return wiredListener{l, w}, err
}

func (w *wire) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix:"))
	return wired{conn, w}, err
}

type wiredListener struct {
	net.Listener
	wire *wire
}

func (l wiredListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return wired{conn, l.wire}, err
}

func (c wired) Write(b []byte) (int, error) {
	n := 8 * int64(len(b))
	if before := c.wire.left.Add(-n) + n; before >= 0 && before < n {
		b = slices.Clone(b)
		b[before/8] ^= 1 << (before % 8)
	}
	return c.Conn.Write(b)
}

// where is a place in which a bit is flipped.
type where string

const (
	onWire     where = "in flight, over sockets"
	inCopy     where = "in flight, between goroutines"
	inEntry    where = "an entry"
	inSaved    where = "a saved tensor"
	inReceived where = "a received tensor"
	inResult   where = "an output or a gradient of an input"
	inGradient where = "an accumulator of gradients"
	inWeight   where = "a weight"
	inMoment   where = "a moment of the optimizer"
	inFar      where = "far memory"
	inFile     where = "a checkpoint"
)

var places = []where{onWire, inCopy, inEntry, inSaved, inReceived, inResult, inGradient, inWeight, inMoment, inFar, inFile}

// classes are the classes of the buffers of a step in which a place may be.
var classes = map[where][]memory.Class{
	inEntry: {memory.Entry}, inSaved: {memory.Saved}, inReceived: {memory.Transfer}, inResult: {memory.Activation, memory.ActGrad},
}

// The shape of an experiment: steps of two replicas of a pipeline of two ranks, with an audit in each.
const (
	replicas, ranks = 2, 2
	flipSteps       = 4
	microbatches    = 6
)

// flip is one experiment: a job in which one bit is flipped. The zero value flips none.
type flip struct {
	place where
	seed  uint64
	at    int   // the flip of a buffer's bit happens at a random action of the first step, with a number below at
	bit   int64 // the number of the bit, among those written to the wire
	off   bool  // neither checksums nor audits

	actions [replicas * ranks]int // set by run: the number of actions of each rank in the first step
	sent    int64                 // set by run: the number of bits on the wire
}

var flipConfig = transformer.Config{Vocabulary: 32, Width: 16, Layers: 2, Heads: 2, Context: 16, Seed: 3}

// run returns the bits of the weights after the last step in hexadecimal, or the first error.
func (f *flip) run(t *testing.T) (weights string, err error) {
	t.Helper()
	rng := rand.New(rand.NewPCG(f.seed, 47))
	victim, at := rng.IntN(replicas*ranks), rng.IntN(max(f.at, 1))
	var devices []*kernels.Host
	var spaces []memory.Space[kernels.Buffer]
	var places [][]kernels.Compute
	var sources []runner.Source[kernels.Buffer]
	for range replicas {
		var row []kernels.Compute
		for range ranks {
			dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 4 << 20})
			require.NoError(t, err)
			devices, spaces, row, sources = append(devices, dev), append(spaces, dev), append(row, dev), append(sources, source(dev))
		}
		places = append(places, row)
	}
	cfg := flipConfig
	cfg.Replicas = replicas
	model, err := transformer.NewOn(cfg, places...)
	require.NoError(t, err)
	now, struck := 0, false
	run := runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: spaces, Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Plan: runner.Plan{Placement: schedule.Looped(ranks, ranks), Rule: schedule.OneFOneB}, Replicas: runner.Replicas{Count: replicas},
		Topology: runner.Topology[kernels.Buffer]{Capacity: 1, Sums: !f.off},
		Hooks: runner.Hooks{Action: func(rank int, _ schedule.Action) {
			if now > 0 {
				return
			}
			if f.actions[rank]++; rank == victim && f.actions[rank] > at && f.place != inMoment && !struck {
				struck = f.strike(rng, model, devices[rank]) // if there is no such buffer, a later action strikes
			}
		}},
	}
	if !f.off {
		run.Audit = 1
	}
	ends := f.join(t, &run, devices)
	if f.place == inCopy {
		copies := 0
		run.Topology.Copy = func(from, to int, h kernels.Buffer) (kernels.Buffer, error) {
			made, err := kernels.Transfer(devices[to], devices[from], h)
			if to == victim && now == 0 && err == nil {
				if copies++; copies == 1+at%4 {
					flipBit(rng, devices[to].Float32s(made))
				}
			}
			return made, err
		}
	}
	if f.place == inFar {
		f.offload(t, &run, model, rng, victim, at)
	}
	r, err := runner.New(run)
	require.NoError(t, err)
	for ; now < flipSteps && err == nil; now++ {
		var result *runner.Result
		if result, err = r.Step(t.Context(), microbatches, runner.PerRank(sources...)); err == nil {
			if f.place == inMoment && now == 1 {
				f.strike(rng, model, devices[victim])
			}
			err = model.Update(transformer.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}, result, 0)
		}
	}
	if err == nil {
		var b strings.Builder
		for _, p := range model.Parameters() {
			for c := range p.All() {
				for _, x := range c.Device.(*kernels.Host).Float32s(c.Weight) {
					fmt.Fprintf(&b, "%08x", math.Float32bits(x))
				}
			}
		}
		weights = b.String()
	}
	if ends != nil {
		f.sent = far - ends.left.Load()
	}
	require.NoError(t, r.Close())
	if ends != nil {
		ends.close()
	}
	require.NoError(t, model.Close())
	for _, dev := range devices {
		require.Zero(t, dev.Live())
		require.NoError(t, dev.Close())
	}
	return weights, err
}

// strike flips a bit in a buffer of the place, on the rank of a device, and reports whether there was such a buffer.
func (f *flip) strike(rng *rand.Rand, model *transformer.Model, dev *kernels.Host) bool {
	var all [][]float32
	for info := range dev.All() {
		if slices.Contains(classes[f.place], info.Class) {
			all = append(all, dev.Float32s(kernels.Buffer{Handle: info.Handle, N: int(info.Bytes / 4)}))
		}
	}
	for _, p := range model.Parameters() {
		for c := range p.All() {
			if c.Device != kernels.Compute(dev) {
				continue
			}
			switch f.place {
			case inGradient:
				all = append(all, dev.Float32s(c.Grad))
			case inWeight:
				all = append(all, dev.Float32s(c.Weight))
			case inMoment:
				all = append(all, dev.Float32s(c.M), dev.Float32s(c.V))
			}
		}
	}
	if len(all) == 0 {
		return false
	}
	flipBit(rng, all[rng.IntN(len(all))])
	return true
}

// flipBit flips a bit of one of the numbers.
func flipBit(rng *rand.Rand, x []float32) {
	i := rng.IntN(len(x))
	x[i] = math.Float32frombits(math.Float32bits(x[i]) ^ 1<<rng.IntN(32))
}

// joined holds the endpoints of a job over sockets.
type joined struct {
	*wire
	ends []*tcp.Endpoint[kernels.Buffer]
}

func (j *joined) close() {
	for _, end := range j.ends {
		end.Close()
	}
}

// join joins the ranks over sockets and returns their ends, or nil if the bit is not flipped there.
func (f *flip) join(t *testing.T, run *runner.Config[kernels.Buffer], devices []*kernels.Host) *joined {
	if f.place != onWire {
		return nil
	}
	folder, j := t.TempDir(), &joined{&wire{}, make([]*tcp.Endpoint[kernels.Buffer], len(devices))}
	j.left.Store(2 * far)
	faults := make([]error, len(devices))
	var joining sync.WaitGroup
	for rank := range j.ends {
		joining.Go(func() {
			j.ends[rank], faults[rank] = tcp.Join(t.Context(), tcp.Config{
				Rank: rank, Ranks: len(devices), Pipeline: ranks, Network: j.wire, Address: filepath.Join(folder, "0"), Listen: filepath.Join(folder, fmt.Sprint(rank)),
				Capacity: 1, Silence: 2 * time.Second, Stall: 5 * time.Second, Sums: !f.off,
			}, devices[rank])
		})
	}
	joining.Wait()
	require.NoError(t, errors.Join(faults...))
	run.Topology = runner.Topology[kernels.Buffer]{Ranks: ranks, Transport: func(rank int) transport.Transport[kernels.Buffer] { return j.ends[rank] }}
	j.left.Store(far)
	if f.bit > 0 {
		j.left.Store(f.bit)
	}
	return j
}

// offload makes a run keep saved tensors in far memory, in which it flips a bit on one rank.
func (f *flip) offload(t *testing.T, run *runner.Config[kernels.Buffer], trained *transformer.Model, rng *rand.Rand, victim, at int) {
	var nulls []kernels.Compute
	var spaces []memory.Space[kernels.Buffer]
	var sources []runner.Source[kernels.Buffer]
	for rank := range ranks {
		null := kernels.NewNull(run.Spaces[rank].(*kernels.Host))
		defer null.Close()
		nulls, spaces = append(nulls, null), append(spaces, null)
		sources = append(sources, source(null))
	}
	model, err := transformer.NewOn(flipConfig, nulls)
	require.NoError(t, err)
	defer model.Close()
	run.Plan.Rule = schedule.GPipe // it leaves time for copies between a forward and its backward
	dry := *run
	dry.Stages, dry.Spaces, dry.Hooks, dry.Replicas = model.Stages(), spaces, runner.Hooks{}, runner.Replicas{}
	profile, err := model.Record(t.Context(), dry, microbatches, record.Shape[kernels.Buffer]{Name: "all", Source: runner.PerRank(sources...)})
	require.NoError(t, err)
	trained.KeepLogits = model.KeepLogits
	run.Memory = runner.Memory{Profile: profile, Offload: runner.Offload{Share: 1, Range: func(rank int) (memory.Range, error) {
		if rank != victim {
			return offload.Heap(), nil
		}
		return &flippedRange{Range: offload.Heap(), rng: rng, at: at % 12}, nil
	}}}
}

// flippedRange flips a bit of the bytes that the read with number at returns.
type flippedRange struct {
	memory.Range
	rng       *rand.Rand
	reads, at int
}

func (r *flippedRange) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.Range.ReadAt(p, off)
	if r.reads++; r.reads-1 == r.at {
		p[r.rng.IntN(len(p))] ^= 1 << r.rng.IntN(8)
	}
	return n, err
}

// inCheckpoint flips a bit of a file of a checkpoint, and returns the error of reading it.
func inCheckpoint(t *testing.T, seed uint64) error {
	rng, folder := rand.New(rand.NewPCG(seed, 47)), t.TempDir()
	weights := make([]float32, 1000)
	for i := range weights {
		weights[i] = rng.Float32()
	}
	require.NoError(t, checkpoint.Save(folder, checkpoint.State{Step: 1}, safetensors.Of("w", []int{len(weights)}, weights)))
	files, err := filepath.Glob(filepath.Join(folder, "step-*", "*"))
	require.NoError(t, err)
	path := files[rng.IntN(len(files))]
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	read, err := checkpoint.Open(folder)
	if err != nil {
		return err
	}
	defer read.Close()
	return checkpoint.Read(read, "w", []int{len(weights)}, make([]float32, len(weights)))
}

// TestFlips flips a bit in every place, and prints which check has found it. A flip in flight, in far memory, in a
// checkpoint or in a weight of one of several replicas must never lead to different weights.
func TestFlips(t *testing.T) {
	testkit.Slow(t)
	each := 6
	if *testkit.Long {
		each = 91
	}
	alone := &flip{}
	want, err := alone.run(t)
	require.NoError(t, err)
	wired := &flip{place: onWire}
	again, err := wired.run(t)
	require.NoError(t, err)
	require.Equal(t, want, again)
	found := map[where]map[string]int{}
	var mu sync.Mutex
	for _, place := range places {
		found[place] = map[string]int{}
	}
	var all sync.WaitGroup
	many := make(chan struct{}, 24)
	for n := range each * len(places) {
		many <- struct{}{}
		all.Go(func() {
			defer func() { <-many }()
			place, verdict, example := places[n%len(places)], "", error(nil)
			f := &flip{place: place, seed: uint64(n), at: alone.actions[0]}
			if place == inFile {
				verdict = "not found"
				if inCheckpoint(t, f.seed) != nil {
					verdict = "checksum of the checkpoint"
				}
			} else {
				f.bit = 1 + rand.New(rand.NewPCG(f.seed, 1)).Int64N(wired.sent-1)
				weights, err := f.run(t)
				verdict, example = verdictOf(err, weights == want), err
			}
			mu.Lock()
			defer mu.Unlock()
			if found[place][verdict]++; found[place][verdict] == 1 && example != nil {
				t.Logf("%s, found by %s: %v", place, verdict, example)
			}
		})
	}
	all.Wait()
	for _, place := range places {
		t.Logf("%-38s %v", place, found[place])
		if slices.Contains([]where{onWire, inCopy, inWeight, inFar, inFile}, place) {
			require.Zero(t, found[place]["not found"], place)
		}
	}
	require.NotZero(t, found[onWire]["checksum"])
	require.NotZero(t, found[inCopy]["checksum"])
	require.NotZero(t, found[inWeight]["audit"])
	require.NotZero(t, found[inSaved]["audit"])
	require.NotZero(t, found[inFar]["checksum of far memory"])
	changed := 0
	for seed := range uint64(6) {
		without := &flip{place: inWeight, off: true, seed: seed, at: alone.actions[0]}
		weights, err := without.run(t)
		require.NoError(t, err)
		if weights != want {
			changed++
		}
	}
	require.NotZero(t, changed, "without checks nothing finds a flip")
}

// verdictOf names the check that found a flip.
func verdictOf(err error, same bool) string {
	has := func(target error) bool { // another rank's error is its text
		return errors.Is(err, target) || strings.Contains(err.Error(), target.Error())
	}
	switch {
	case err == nil && same:
		return "no effect"
	case err == nil:
		return "not found"
	case has(runner.ErrCorrupt):
		return "audit"
	case has(transport.ErrSum):
		return "checksum"
	case has(offload.ErrChecksum):
		return "checksum of far memory"
	case errors.Is(err, runner.ErrNoUpdate):
		return "not finite"
	case errors.Is(err, runner.ErrOverwritten):
		return "norm"
	case errors.As(err, new(*transport.TagError)):
		return "tag"
	case has(tcp.ErrFrame):
		return "frame"
	case has(tcp.ErrSilent):
		return "silence"
	case has(kernels.ErrShape):
		return "a kernel's check"
	case errors.As(err, new(*transport.StallError)):
		return "stall"
	case errors.As(err, new(*tcp.LostError)):
		return "lost rank"
	}
	return "another error"
}

func source(dev kernels.Device) runner.Source[kernels.Buffer] {
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
		tokens, weights := make([]int32, 16), make([]float32, 16)
		for i := range tokens {
			tokens[i], weights[i] = int32(7*i+e.Index())%32, 1
		}
		transformer.Put(dev, e, tokens, tokens, weights)
		return nil
	})
}
