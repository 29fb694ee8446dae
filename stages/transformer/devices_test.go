package transformer_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// newModelOn returns a model on several devices that is closed when the test ends.
func newModelOn(t testing.TB, cfg transformer.Config, devices ...[]kernels.Compute) *transformer.Model {
	t.Helper()
	m, err := transformer.NewOn(cfg, devices...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// TestDevices places the stages of a model on devices: each has the parameters that its stages
// use, each name once, and the initial weights are the same as on one device.
func TestDevices(t *testing.T) {
	a, b, alone := newHost(t), newHost(t), newHost(t)
	on := map[kernels.Compute]string{a: "a", b: "b"}
	one := newModel(t, alone, tiny, 4)
	cfgUntied := tiny
	cfgUntied.Untied = true
	for _, test := range []struct {
		name    string
		cfg     transformer.Config
		devices [][]kernels.Compute
		table   string // devices that have the embedding's table
		block1  string
		norm    string
		uses    map[string]int // of the table, by device
	}{
		{"each half", tiny, [][]kernels.Compute{{a, a, b, b}}, "ab", "b", "b", map[string]int{"a": 1, "b": 1}},
		{"a wave", tiny, [][]kernels.Compute{{a, b, b, a}}, "a", "b", "a", map[string]int{"a": 2}},
		{"untied", cfgUntied, [][]kernels.Compute{{a, a, b, b}}, "a", "b", "b", map[string]int{"a": 1}},
		{"identities", tiny, [][]kernels.Compute{{a, b, a, b, a, b, a}}, "a", "a", "a", map[string]int{"a": 2}},
		{"two copies", tiny, [][]kernels.Compute{{a, b}, {b, a}}, "ab", "ba", "ba", map[string]int{"a": 2, "b": 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newModelOn(t, test.cfg, test.devices...)
			places := map[string]string{}
			accumulators := map[string]map[kernels.Buffer]bool{"a": {}, "b": {}}
			for i, p := range m.Parameters() {
				if !test.cfg.Untied {
					require.Equal(t, one.Parameters()[i].Name, p.Name, "the order is the same as on one device")
				}
				for c := range p.All() {
					places[p.Name] += on[c.Device]
					require.Equal(t, memory.Resident, c.Device.Class(c.Weight))
					for _, b := range []kernels.Buffer{c.Grad, c.M, c.V} {
						require.Equal(t, make([]float32, c.Weight.N), read(t, c.Device, b))
					}
					if i := slices.IndexFunc(one.Parameters(), func(q *transformer.Parameter) bool { return q.Name == p.Name }); i >= 0 {
						require.Equal(t, read(t, alone, one.Parameters()[i].Weight), read(t, c.Device, c.Weight), p.Name)
					}
				}
			}
			require.Equal(t, test.table, places["embedding.weight"])
			require.Equal(t, test.block1, places["block1.mlp.up.weight"])
			require.Equal(t, test.norm, places["norm.weight"])

			count := map[string]int{}
			flat := slices.Concat(test.devices...)
			require.Len(t, m.Stages(), len(flat))
			for s, stage := range m.Stages() {
				for _, param := range stages.Params(stage) {
					dev := on[flat[s]]
					require.False(t, accumulators[dev][param.Grad], "every use has an accumulator of its own")
					accumulators[dev][param.Grad] = true
					if param.Name == "embedding.weight" {
						count[dev]++
					}
				}
			}
			require.Equal(t, test.uses, count)
			require.NoError(t, m.Close())
			require.Zero(t, a.Live())
			require.Zero(t, b.Live())
		})
	}
}

func TestNewOnRefuses(t *testing.T) {
	a := newHost(t)
	for want, devices := range map[string][][]kernels.Compute{
		"no list of devices":   nil,
		"devices for 0 stages": {{}},
		"devices for 2 stages of copy 1, and for 1 of copy 0":     {{a}, {a, a}},
		"stage 1 of copy 0 has no device":                         {{a, nil}},
		"the device of stage 0 of copy 1 is a transformer_test.s": {{a}, {slice{Compute: a}}},
	} {
		_, err := transformer.NewOn(tiny, devices...)
		require.ErrorContains(t, err, want)
	}
	_, err := transformer.NewOn(transformer.Config{}, []kernels.Compute{nil})
	require.ErrorContains(t, err, "Vocabulary is 0")
	require.ErrorContains(t, err, "no device")
	_, err = transformer.New(nil, tiny, 2)
	require.ErrorContains(t, err, "stage 1 of copy 0 has no device")
}

// slice is a device that is not comparable in Go.
type slice struct {
	kernels.Compute
	_ []int
}

// TestNewOnTooSmallDevices: whichever of two devices is full, the memory of both is released.
func TestNewOnTooSmallDevices(t *testing.T) {
	for which := range 2 {
		var devices []kernels.Compute
		for i := range 2 {
			capacity := int64(64 << 10)
			if i == which {
				capacity = 4 << 10
			}
			dev, err := kernels.NewHost(kernels.HostConfig{Capacity: capacity})
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			devices = append(devices, dev)
		}
		_, err := transformer.NewOn(tiny, []kernels.Compute{devices[0], devices[1], devices[0], devices[1]})
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		for _, dev := range devices {
			require.Zero(t, dev.Live())
		}
	}
}
