package safetensors_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	st "github.com/weir-ml/weir/trainer/safetensors"
)

func encode(t testing.TB, metadata map[string]string, tensors ...st.Tensor) []byte {
	var b bytes.Buffer
	require.NoError(t, st.Write(&b, metadata, tensors...))
	return b.Bytes()
}

func open(t testing.TB, file []byte) *st.Reader {
	r, err := st.NewReader(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	return r
}

// sample has a tensor of every type, one with an empty shape, and one without elements.
func sample() (map[string]string, []st.Tensor) {
	return map[string]string{"step": "7", "quote": `"</a>` + "\u2028"}, []st.Tensor{
		st.Of("bytes", []int{3}, []uint8{1, 2, 255}),
		st.Of("b", []int{2, 2}, []float32{1, -0.5, float32(math.Inf(1)), math.Float32frombits(0xff812345)}),
		st.Of("a", []int{2}, []float32{math.SmallestNonzeroFloat32, float32(math.Copysign(0, -1))}),
		st.Of("scalar", nil, []int64{math.MinInt64}),
		st.Of("none", []int{4, 0, 2}, []int32{}),
		st.Of("tökens", []int{1, 2}, []int32{-1, math.MaxInt32}),
	}
}

func TestWriteLayout(t *testing.T) {
	metadata, tensors := sample()
	file := encode(t, metadata, tensors...)
	header := `{"__metadata__":{"quote":"\"\u003c/a\u003e\u2028","step":"7","weir.sha256":"DIGEST"},` +
		`"scalar":{"dtype":"I64","shape":[],"data_offsets":[0,8]},` +
		`"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},` +
		`"b":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]},` +
		`"none":{"dtype":"I32","shape":[4,0,2],"data_offsets":[32,32]},` +
		`"tökens":{"dtype":"I32","shape":[1,2],"data_offsets":[32,40]},` +
		`"bytes":{"dtype":"U8","shape":[3],"data_offsets":[40,43]}}`
	data := "\x00\x00\x00\x00\x00\x00\x00\x80" + "\x01\x00\x00\x00\x00\x00\x00\x80" +
		"\x00\x00\x80\x3f\x00\x00\x00\xbf\x00\x00\x80\x7f\x45\x23\x81\xff" + "\xff\xff\xff\xff\xff\xff\xff\x7f" + "\x01\x02\xff"
	fill := func(digest string) string {
		h := strings.Replace(header, "DIGEST", digest, 1)
		h += strings.Repeat(" ", (8-len(h)%8)%8)
		return string([]byte{byte(len(h)), byte(len(h) >> 8), 0, 0, 0, 0, 0, 0}) + h + data
	}
	sum := sha256.Sum256([]byte(fill(strings.Repeat("0", 64)))) // as defined in doc.go
	require.Equal(t, fill(hex.EncodeToString(sum[:])), string(file))

	for i := range tensors { // the order of the arguments does not matter
		tensors[0], tensors[i] = tensors[i], tensors[0]
		require.Equal(t, file, encode(t, metadata, tensors...))
	}
}

func TestRoundTrip(t *testing.T) {
	metadata, tensors := sample()
	big := make([]float32, 100_003) // more than one chunk, not a whole number of chunks
	for i := range big {
		big[i] = float32(i) * 0.37
	}
	r := open(t, encode(t, metadata, append(tensors, st.Of("big", []int{1, len(big)}, big))...))
	require.NoError(t, r.Verify())
	require.Equal(t, "7", r.Metadata()["step"])
	require.Equal(t, metadata["quote"], r.Metadata()["quote"])

	again := make([]float32, len(big))
	require.NoError(t, st.Read(r, "big", again))
	require.Equal(t, big, again)

	b, nan := make([]float32, 4), uint32(0xff812345)
	require.NoError(t, st.Read(r, "b", b))
	require.Equal(t, nan, math.Float32bits(b[3]), "the payload of a NaN survives")
	u8, i32, i64 := make([]uint8, 3), make([]int32, 2), make([]int64, 1)
	require.NoError(t, errors.Join(st.Read(r, "bytes", u8), st.Read(r, "tökens", i32), st.Read(r, "scalar", i64), st.Read(r, "none", []int32{})))
	require.Equal(t, []uint8{1, 2, 255}, u8)
	require.Equal(t, []int32{-1, math.MaxInt32}, i32)
	require.Equal(t, []int64{math.MinInt64}, i64)

	raw, err := r.Bytes("tökens")
	require.NoError(t, err)
	require.EqualValues(t, 8, raw.Size())
	info, err := r.Info("none")
	require.NoError(t, err)
	require.Equal(t, st.Info{Name: "none", DType: st.I32, Shape: []int{4, 0, 2}, Begin: info.End, End: info.End}, info)
	require.Len(t, r.Tensors(), 7)
}

func TestWriteRefuses(t *testing.T) {
	one := []float32{1}
	for _, c := range []struct {
		name     string
		metadata map[string]string
		tensors  []st.Tensor
		want     string
	}{
		{"empty name", nil, []st.Tensor{st.Of("", nil, one)}, `tensor name "" is empty`},
		{"long name", nil, []st.Tensor{st.Of(strings.Repeat("x", 1025), nil, one)}, `tensor name "` + strings.Repeat("x", 80) + `" has 1025 bytes, at most 1024 are allowed`},
		{"reserved name", nil, []st.Tensor{st.Of("__metadata__", nil, one)}, `tensor name "__metadata__" is reserved`},
		{"name not UTF-8", nil, []st.Tensor{st.Of("a\xff", nil, one)}, `tensor name "a\xff" is not UTF-8`},
		{"twice", nil, []st.Tensor{st.Of("a", nil, one), st.Of("a", []int{1}, []int32{1})}, `two tensors named "a"`},
		{"shape", nil, []st.Tensor{st.Of("a", []int{2, 3}, one)}, `tensor "a" has the shape [2 3] and 1 elements`},
		{"negative", nil, []st.Tensor{st.Of("a", []int{-1, -1}, one)}, `tensor "a" has the shape [-1 -1], a dimension is negative`},
		{"overflow", nil, []st.Tensor{st.Of("a", []int{math.MinInt >> 1 & math.MaxInt, 4, 4}, []float32{})}, fmt.Sprintf(`tensor "a" has the shape [%d 4 4] and 0 elements`, math.MinInt>>1&math.MaxInt)},
		{"zero Tensor", nil, make([]st.Tensor, 1), `tensor name "" is empty`},
		{"metadata key", map[string]string{"weir.sha256": "x"}, nil, `metadata has the key "weir.sha256", which is reserved for this package`},
		{"metadata not UTF-8", map[string]string{"k": "\xff"}, nil, `metadata "k" is not UTF-8`},
		{"header too large", map[string]string{"k": strings.Repeat("x", st.MaxHeader)}, nil, `the header would have more than 100000000 bytes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			err := st.Write(&b, c.metadata, c.tensors...)
			require.ErrorIs(t, err, st.ErrInput)
			require.EqualError(t, err, "safetensors: cannot be written: "+c.want)
			require.Zero(t, b.Len())
		})
	}
}

// limited fails after n bytes.
type limited struct{ n int }

var errFull = errors.New("disk full")

func (l *limited) Write(b []byte) (int, error) {
	if l.n -= len(b); l.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteError(t *testing.T) {
	metadata, tensors := sample()
	size := len(encode(t, metadata, tensors...))
	for n := range size {
		require.ErrorIs(t, st.Write(&limited{n}, metadata, tensors...), errFull)
	}
	require.NoError(t, st.Write(&limited{size}, metadata, tensors...))
}

// Values that are loaded while they are written give the same bytes; a failure to load them, or
// too few of them, is detected before anything is written.
func TestLoad(t *testing.T) {
	values := []float32{1, 2, 3, 4, 5, 6}
	calls := 0
	lazy := st.Load("w", []int{2, 3}, func() ([]float32, error) { calls++; return values, nil })
	require.Equal(t, encode(t, nil, st.Of("w", []int{2, 3}, values)), encode(t, nil, lazy))
	require.Equal(t, 2, calls)

	var b bytes.Buffer
	lost := errors.New("lost")
	require.ErrorIs(t, st.Write(&b, nil, st.Load("w", []int{6}, func() ([]float32, error) { return nil, lost })), lost)
	require.ErrorIs(t, st.Write(&b, nil, st.Load("w", []int{7}, func() ([]float32, error) { return values, nil })), st.ErrInput)
	huge := st.Load("w", []int{math.MaxInt / 8}, func() ([]float32, error) { return nil, nil })
	require.ErrorIs(t, st.Write(&b, nil, huge, st.Load("x", []int{math.MaxInt / 8}, func() ([]float32, error) { return nil, nil })), st.ErrInput)
	require.Zero(t, b.Len())
}

// If a write fails, the existing file remains.
func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, st.WriteFile(path, nil, st.Of("a", []int{1}, []float32{1})))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.ErrorIs(t, st.WriteFile(path, nil, st.Of("a", []int{9}, []float32{1})), st.ErrInput)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.ErrorIs(t, st.WriteFile(filepath.Join(t.TempDir(), "none", "x"), nil), os.ErrNotExist)
}
