package gomlx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/gomlx"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
	"github.com/weir-ml/weir/transport/transporttest"
)

// distant is a backend whose buffers the host cannot access.
type distant struct{ compute.Backend }

func (distant) HasSharedBuffers() bool { return false }

func (distant) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	panic("not supported")
}

// device returns the device of a backend, whose buffers the host can access if shared is set.
func device(t testing.TB, shared bool) *gomlx.Device {
	b, err := gomlx.NewBackend("")
	require.NoError(t, err)
	if !shared {
		b.Backend = distant{b.Backend}
	}
	return b.Model()
}

// TestCodec: what is decoded has the shape and the bytes of what was encoded, and faulty encodings
// leave nothing on the device.
func TestCodec(t *testing.T) {
	for _, shared := range []bool{true, false} {
		from, to := device(t, shared), device(t, shared)
		for _, shape := range []shapes.Shape{
			shapes.Make(dtypes.Float32, 3, 5), shapes.Make(dtypes.Float32), shapes.Make(dtypes.Bool, 7), shapes.Make(dtypes.BFloat16, 2, 1, 2),
			shapes.Make(dtypes.Int4, 5), shapes.Make(dtypes.Complex128, 2), shapes.Make(dtypes.Float32, 0, 4),
		} {
			flat := dtypes.MakeAnySlice(shape.DType, shape.Size())
			for i, b := range dtypes.UnsafeByteSliceFromAny(flat) {
				dtypes.UnsafeByteSliceFromAny(flat)[i] = (b + byte(i)) & 1
			}
			sent, err := from.Put(memory.Activation, flat, shape)
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, from.Encode(&text, sent))
			require.Equal(t, from.Size(sent), int64(text.Len()), shape)
			got, err := to.Decode(bytes.NewReader(text.Bytes()), int64(text.Len()))
			require.NoError(t, err, shape)
			require.Equal(t, memory.Transfer, to.Class(got))
			same, err := got.Shape()
			require.NoError(t, err)
			require.True(t, shape.Equal(same), same)
			copied := dtypes.MakeAnySlice(shape.DType, shape.Size())
			require.NoError(t, got.ToFlatData(copied))
			require.Equal(t, flat, copied)
			freed, err := to.Release(got)
			require.NoError(t, err)
			require.Equal(t, shape.ByteSize(), freed)

			for n := range text.Len() {
				_, err := to.Decode(bytes.NewReader(text.Bytes()[:n]), int64(text.Len()))
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
			}
			for _, off := range []int64{-1, 1, 1 << 60, -1 << 60} {
				_, err := to.Decode(bytes.NewReader(text.Bytes()), int64(text.Len())+off)
				require.ErrorIs(t, err, gomlx.ErrEncoding)
			}
			for i := range 2 + 8*shape.Rank() {
				wrong := bytes.Clone(text.Bytes())
				wrong[i] ^= 0xff
				_, err := to.Decode(bytes.NewReader(wrong), int64(len(wrong)))
				require.Error(t, err, "%v, byte %d", shape, i)
			}
			_, err = from.Release(sent)
			require.NoError(t, err)
			require.Error(t, from.Encode(io.Discard, sent))
			require.Zero(t, from.Live())
			require.Zero(t, to.Live())
		}
	}
}

// join joins all ranks of a job over a Unix socket.
func join(t testing.TB, devices []*gomlx.Device, capacity int) ([]*tcp.Endpoint[gomlx.T], error) {
	ends, faults := make([]*tcp.Endpoint[gomlx.T], len(devices)), make([]error, len(devices))
	at := "unix:" + filepath.Join(t.TempDir(), "job")
	together(len(devices), func(rank int) {
		ends[rank], faults[rank] = tcp.Join(context.Background(), tcp.Config{Address: at, Rank: rank, Ranks: len(devices), Capacity: capacity, Token: "a job"}, devices[rank])
	})
	return ends, errors.Join(faults...)
}

func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func closeAll(ends []*tcp.Endpoint[gomlx.T]) error {
	faults := make([]error, len(ends))
	together(len(ends), func(i int) { faults[i] = ends[i].Close() })
	return errors.Join(faults...)
}

// TestConforms runs the suite of transports with tensors of GoMLX.
func TestConforms(t *testing.T) {
	devices := make([]*gomlx.Device, 8)
	for i := range devices {
		devices[i] = device(t, i%2 == 0)
	}
	transporttest.Run(t, transporttest.Subject[gomlx.T]{
		Capacities: []int{0, 3},
		New: func(ranks, capacity int) (all []transport.Transport[gomlx.T], end func() error, err error) {
			ends, err := join(t, devices[:ranks], capacity)
			for _, end := range ends {
				all = append(all, end)
			}
			return all, func() error { return closeAll(ends) }, err
		},
		Make: func(rank int, value float64) (gomlx.T, error) {
			return devices[rank].Put(memory.Activation, []float64{value}, shapes.Make(dtypes.Float64))
		},
		Read: func(_ int, h gomlx.T) (float64, error) {
			var value [1]float64
			err := h.ToFlatData(value[:])
			return value[0], err
		},
		Write: func(_ int, h gomlx.T, value float64) error {
			flat, err := h.Data()
			if err == nil {
				flat.([]float64)[0] = value
			}
			return err
		},
		Release: func(rank int, h gomlx.T) error {
			_, err := devices[rank].Release(h)
			return err
		},
	})
}

// process has the part of a job that would belong to one process.
type process struct {
	cfg gomlx.Config
	m   *gomlx.Model
	run *runner.Runner[gomlx.T]
}

// processes returns processes of some ranks each, joined over a Unix socket. change, if it is not
// nil, changes the configuration of a runner.
func processes(t *testing.T, each, ranks int, make func() gomlx.Config, change func(*runner.Config[gomlx.T])) (list []*process, end func()) {
	var devices []*gomlx.Device
	for first := 0; first < ranks; first += each {
		p := &process{cfg: make()}
		p.cfg.Ranks, p.cfg.First, p.cfg.Count = ranks, first, each
		p.m = newModel(t, p.cfg)
		devices, list = append(devices, p.m.Devices[first:][:each]...), append(list, p)
	}
	ends, err := join(t, devices, 1)
	require.NoError(t, err)
	for _, p := range list {
		cfg := p.m.Runner()
		cfg.Topology.Transport = func(rank int) transport.Transport[gomlx.T] { return ends[rank] }
		if change != nil {
			change(&cfg)
		}
		p.run = newRunner(t, cfg)
	}
	return list, func() {
		for _, p := range list {
			require.NoError(t, p.run.Close())
			p.m.Close()
		}
		require.NoError(t, closeAll(ends))
	}
}

// TestProcesses: a job of several processes trains its variables to the bits of GoMLX's trainer,
// each in the process of its rank, and leaves those of the others as they were.
func TestProcesses(t *testing.T) {
	const steps, microbatches = 3, 8
	want, _ := reference(t, config(4), steps, microbatches)
	tied := trained(t, shared(config(4)), steps)
	for _, c := range []struct {
		schedule    string
		each, ranks int
		tied        bool
	}{{"1f1b", 1, 2, false}, {"1f1b", 2, 4, false}, {"interleaved", 1, 2, false}, {"zb-v", 1, 2, false}, {"1f1b", 1, 4, true}, {"zb-h1", 2, 4, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			list, end := processes(t, c.each, c.ranks, func() gomlx.Config {
				cfg := config(4)
				if c.tied {
					cfg = shared(cfg)
				}
				cfg.Schedule = c.schedule
				return cfg
			}, nil)
			found, err := schedule.Find(c.schedule)
			require.NoError(t, err)
			placement, err := found.Place(c.ranks, 4)
			require.NoError(t, err)
			initial, faults := values(t, list[0].cfg.Store), make([]error, len(list))
			for range steps {
				together(len(list), func(i int) {
					step, err := list[i].run.Step(t.Context(), microbatches, source(list[i].m))
					if err == nil && (step.Books != 2 || step.Growth != memory.Growth{Audited: true}) {
						err = fmt.Errorf("%d books, growth %v", step.Books, step.Growth)
					}
					if err == nil {
						err = step.Update(list[i].m.Update)
					}
					faults[i] = err
				})
				require.NoError(t, errors.Join(faults...))
			}
			for i, p := range list {
				expected := maps.Clone(initial)
				for s, rank := range placement.Rank {
					if rank/c.each != i {
						continue
					}
					for _, name := range []string{"weights", "biases"} {
						path, from := fmt.Sprintf("/layer%d/dense/%s", s, name), want
						if c.tied {
							from = tied
						}
						if c.tied && s == 2 { // it has the weights of stage 1
							path = "/layer1/dense/" + name
						}
						expected[path] = from[path]
					}
				}
				require.Equal(t, expected, values(t, p.cfg.Store), "process %d", i)
			}
			end()
			for _, p := range list {
				for _, d := range p.m.Devices[p.cfg.First:][:p.cfg.Count] {
					var stats memory.Stats
					d.Stats(&stats)
					require.Equal(t, stats.Classes[memory.Resident], d.Live())
				}
			}
		})
	}
}

// TestRanksOfAProcess: New rejects ranks that the job does not have.
func TestRanksOfAProcess(t *testing.T) {
	for _, of := range [][2]int{{-1, 1}, {2, 0}, {1, 2}, {0, 3}, {0, -1}} {
		cfg := config(4)
		cfg.Ranks, cfg.First, cfg.Count = 2, of[0], of[1]
		_, err := gomlx.New(cfg)
		require.ErrorContains(t, err, "Config.First is")
	}
}
