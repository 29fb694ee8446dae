package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/kerneltest"
)

// TestPlainGoByDefinition runs the cases of package kerneltest for low precision, which compare a
// device with plain Go, on plain Go itself: every result must be the definition's.
func TestPlainGoByDefinition(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	for _, c := range kerneltest.Cases() {
		if c.Null || !strings.Contains(c.Name, "quantize") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			b := newBenchWith(t, kernels.HostConfig{Instructions: kernels.Portable})
			require.NoError(t, c.Check(defined{b.Host, b}))
		})
	}
}

// defined is a device that compares the results of low precision with the definition.
type defined struct {
	*kernels.Host
	b *bench
}

// Quantize checks codes, scales and tally, and that finite numbers decode to finite numbers, even
// if the code nearest to one of them represents more than the greatest float32.
func (d defined) Quantize(op kernels.Quantize) error {
	var words, before []int32
	if op.Tally != (kernels.Cell{}) {
		words, before = make([]int32, op.Tally.Buffer.N), make([]int32, op.Tally.Buffer.N)
		require.NoError(d.b, d.ReadInt32(before, op.Tally.Buffer))
	}
	if err := d.Host.Quantize(op); err != nil {
		return err
	}
	var fixed float32
	if op.Scale != (kernels.Cell{}) {
		fixed = d.b.read(op.Scale.Buffer)[op.Scale.Index]
	}
	rows := d.b.read(op.X)
	for _, q := range []kernels.Quantized{op.Columnwise, op.Rowwise} {
		if q == (kernels.Quantized{}) {
			continue
		}
		x := rows
		if q == op.Columnwise {
			x = turned(rows, op.Rows, op.Cols)
		}
		m := d.b.matrix(q)
		factors, multiplied := d.b.check(fmt.Sprintf("%d×%d in %s, %+v", op.Rows, op.Cols, q.Encoding, op), op, q, x, fixed)
		wild := slices.ContainsFunc(x, func(v float32) bool { return v-v != 0 })
		for i := range x {
			if v := m.value(i/m.cols, i%m.cols); v-v != 0 && !wild {
				d.b.Fatalf("%s: element %d, %v, decodes to %v", q.Encoding, i, x[i], v)
			}
		}
		if words != nil {
			copy(words, before)
			m.count(words[op.Tally.Index*kernels.TallyWords:], x, factors, multiplied)
		}
	}
	if words != nil {
		require.NoError(d.b, d.ReadInt32(before, op.Tally.Buffer))
		require.Equal(d.b, words, before, "the tally of %+v", op)
	}
	return nil
}

// count merges the tally of a matrix quantized from x into the words of a cell. The elements were
// multiplied by the factors; multiplied are the scales that a tally counts.
func (m *storedMatrix) count(words []int32, x, factors, multiplied []float32) {
	bits := func(x float32) int32 { return int32(math.Float32bits(x) &^ (1 << 31)) } // which compare like magnitudes
	for _, scale := range multiplied {
		if words[1] == 0 || bits(scale) < words[1] {
			words[1] = bits(scale)
		}
		words[2] = max(words[2], bits(scale))
	}
	magnitudes, sign := values(m.Format)
	last := len(magnitudes) - 1
	beyond := magnitudes[last] + (magnitudes[last]-magnitudes[last-1])/2 // above it, or at it if the top code is odd, an element saturates
	increment := func(counter []int32) {
		counter[0]++
		if counter[0] == 0 {
			counter[1]++
		}
	}
	for k, v := range x {
		words[0] = max(words[0], bits(v))
		if v-v != 0 {
			words[3] = max(words[3], words[3]+1) // stops at the greatest int32
			continue
		}
		code, scaled := m.code(k/m.cols, k%m.cols), v*factors[k]
		if factors[k] != factors[k] { // a block of NaN counts as if its scale were 1
			code, scaled = encoded(m.Format, v), v
		}
		if a := math.Abs(float64(scaled)); a > beyond || a == beyond && last%2 == 1 {
			increment(words[4:])
		}
		if code&^sign == 0 && v != 0 {
			increment(words[6:])
		}
	}
}

func (d defined) Dequantize(dst kernels.Buffer, q kernels.Quantized, transposed bool) error {
	if err := d.Host.Dequantize(dst, q, transposed); err != nil {
		return err
	}
	m := d.b.matrix(q)
	want := make([]float32, q.Rows*q.Cols)
	for i := range want {
		want[i] = m.value(i/q.Cols, i%q.Cols)
	}
	if transposed {
		want = turned(want, q.Rows, q.Cols)
	}
	sameNumbers(d.b.TB, want, d.b.read(dst), "%s, decoded, transposed %t", q.Encoding, transposed)
	return nil
}

func (d defined) QuantizedMatMul(op kernels.QuantizedMatMul) error {
	want := d.b.matrix(op.A).product(d.b.matrix(op.B), d.b.read(op.C), op.Accumulate)
	if err := d.Host.QuantizedMatMul(op); err != nil {
		return err
	}
	if op.Bias != (kernels.Buffer{}) {
		for i, v := range slices.Repeat(d.b.read(op.Bias), op.M) {
			want[i] += v
		}
	}
	sameNumbers(d.b.TB, want, d.b.read(op.C), "%d×%d×%d of %s and %s", op.M, op.N, op.K, op.A.Encoding, op.B.Encoding)
	return nil
}

// matrix reads a quantized matrix.
func (b *bench) matrix(q kernels.Quantized) *storedMatrix {
	return newStoredMatrix(q.Encoding, q.Rows, q.Cols, b.bytes(q.Data))
}

// turned returns the transpose of rows×cols elements.
func turned(x []float32, rows, cols int) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i%cols*rows+i/cols] = v
	}
	return y
}
