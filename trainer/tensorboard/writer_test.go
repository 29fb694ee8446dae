package tensorboard_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-ml/weir/trainer/tensorboard"
)

func Example() {
	folder, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	events, file, err := tensorboard.Create(folder, time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(3) {
		err = errors.Join(err, events.Scalars(step, time.Now(),
			tensorboard.Scalar{Tag: "loss/train", Value: 1 / float64(step+1)},
			tensorboard.Scalar{Tag: "memory/live", Value: 4096}))
	}
	fmt.Println(errors.Join(err, file.Close()))
	// Output: <nil>
}

type event struct {
	wall    float64
	step    int64
	version string
	values  map[string]float32
}

// decode reads records and events with different code from the writer's, and refuses unknown ones.
func decode(t *testing.T, data []byte) (events []event) {
	t.Helper()
	unmask := func(b []byte) uint32 {
		rotated := binary.LittleEndian.Uint32(b) - 0xa282ead8
		return rotated>>17 | rotated<<15
	}
	sum := func(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		require.Equal(t, sum(data[:8]), unmask(data[8:12]), "checksum of the length")
		require.Equal(t, sum(data[12:12+n]), unmask(data[12+n:16+n]), "checksum of the event")
		var e event
		fields(t, data[12:12+n], func(field protowire.Number, kind protowire.Type, b []byte) (n int) {
			var x uint64
			switch {
			case field == 1 && kind == protowire.Fixed64Type:
				x, n = protowire.ConsumeFixed64(b)
				e.wall = math.Float64frombits(x)
			case field == 2 && kind == protowire.VarintType:
				x, n = protowire.ConsumeVarint(b)
				e.step = int64(x)
			case field == 3 && kind == protowire.BytesType:
				e.version, n = protowire.ConsumeString(b)
			case field == 5 && kind == protowire.BytesType:
				var message []byte
				message, n = protowire.ConsumeBytes(b)
				e.values = summary(t, message)
			}
			return n
		})
		events, data = append(events, e), data[16+n:]
	}
	return events
}

func summary(t *testing.T, message []byte) map[string]float32 {
	values := map[string]float32{}
	fields(t, message, func(field protowire.Number, kind protowire.Type, b []byte) int {
		require.Equal(t, protowire.Number(1), field)
		value, n := protowire.ConsumeBytes(b)
		var tag string
		var x uint32
		fields(t, value, func(field protowire.Number, kind protowire.Type, b []byte) (n int) {
			switch {
			case field == 1 && kind == protowire.BytesType:
				tag, n = protowire.ConsumeString(b)
			case field == 2 && kind == protowire.Fixed32Type:
				x, n = protowire.ConsumeFixed32(b)
			}
			return n
		})
		values[tag] = math.Float32frombits(x)
		return n
	})
	return values
}

func fields(t *testing.T, message []byte, take func(protowire.Number, protowire.Type, []byte) int) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		require.Positive(t, n)
		message = message[n:]
		n = take(field, kind, message)
		require.Positive(t, n, "field %d of type %d", field, kind)
		message = message[n:]
	}
}

func TestEventsReadBack(t *testing.T) {
	var out bytes.Buffer
	begin := time.Unix(1_790_000_000, 500_000_000)
	w, err := tensorboard.New(&out, begin)
	require.NoError(t, err)
	want := []event{{wall: 1_790_000_000.5, version: "brain.Event:2"}}
	long := string(bytes.Repeat([]byte("long/"), 100))
	for i, step := range []int64{0, 1, 127, 128, 1 << 40} {
		at := begin.Add(time.Duration(i) * time.Second)
		x := math.Ldexp(1.5, i)
		require.NoError(t, w.Scalars(step, at,
			tensorboard.Scalar{Tag: "loss/train", Value: x},
			tensorboard.Scalar{Tag: long, Value: math.Inf(1)},
			tensorboard.Scalar{Tag: "größe", Value: -x}))
		want = append(want, event{wall: 1_790_000_000.5 + float64(i), step: step,
			values: map[string]float32{"loss/train": float32(x), long: float32(math.Inf(1)), "größe": -float32(x)}})
	}
	require.Equal(t, want, decode(t, out.Bytes()))
}

// A record of TensorBoard's own tests: this decoder reads what TensorFlow wrote.
func TestDecoderReadsAnotherWriter(t *testing.T) {
	record, err := hex.DecodeString("1800000000000000a37f4b2209" + "0000c025dd75d541" + "1a0d627261696e2e4576656e743a31" + "ecf3328d")
	require.NoError(t, err)
	require.Equal(t, []event{{wall: math.Float64frombits(0x41d575dd25c00000), version: "brain.Event:1"}}, decode(t, record))
}

func TestCreate(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "runs", "a")
	at := time.Unix(1_790_000_000, 0)
	w, file, err := tensorboard.Create(folder, at)
	require.NoError(t, err)
	require.Regexp(t, `events\.out\.tfevents\.1790000000\..+`, filepath.Base(file.Name()))
	require.NoError(t, w.Scalars(7, at, tensorboard.Scalar{Tag: "a", Value: 1}))
	require.NoError(t, file.Close())
	data, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Len(t, decode(t, data), 2)
	_, _, err = tensorboard.Create(folder, at)
	require.ErrorIs(t, err, os.ErrExist, "another run's file is never written over")
	require.Error(t, w.Scalars(8, at), "the file is closed")
}

func TestScalarsAllocateNothing(t *testing.T) {
	w, err := tensorboard.New(discard{}, time.Now())
	require.NoError(t, err)
	values := []tensorboard.Scalar{{Tag: "loss", Value: 1}, {Tag: "memory", Value: 2}}
	at := time.Now()
	require.NoError(t, w.Scalars(0, at, values...))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = w.Scalars(1, at, values...) }))
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// A string of protocol buffers is UTF-8: a reader refuses the whole event otherwise.
func TestTagsAreUTF8(t *testing.T) {
	var file bytes.Buffer
	w, err := tensorboard.New(&file, time.Unix(0, 0))
	require.NoError(t, err)
	require.NoError(t, w.Scalars(1, time.Unix(0, 0), tensorboard.Scalar{Tag: "loss/\xff\xfe", Value: 2}, tensorboard.Scalar{Tag: "b", Value: 3}))
	events := decode(t, file.Bytes())
	require.Equal(t, map[string]float32{"loss/\ufffd": 2, "b": 3}, events[1].values)
}
