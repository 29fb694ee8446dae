package kerneltest_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/kerneltest"
	"github.com/weir-ml/weir/memory"
)

// broken is a device with one fault: each function that is set replaces an operation.
type broken struct {
	*kernels.Host
	beside    map[kernels.Buffer]kernels.Buffer // the buffer allocated after the key
	last      kernels.Buffer
	calls     int
	matmul    func(op kernels.MatMul) error
	sumRows   func(dst, x kernels.Buffer, rows, cols int, accumulate bool) error
	add       func(dst, src kernels.Buffer) error
	norm      func(op kernels.LayerNorm) error
	normBack  func(op kernels.LayerNormBackward) error
	gelu      func(y, x kernels.Buffer) error
	geluBack  func(dx, dy, x kernels.Buffer) error
	attention func(op kernels.CausalAttention) error
	attBack   func(op kernels.CausalAttentionBackward) error
	attSpace  func(tokens, heads, dim int) (int, int)
	embedBack func(op kernels.EmbedBackward) error
	loss      func(op kernels.HeadLoss) (float64, float64, error)
	lossBack  func(op kernels.HeadLossBackward) error
	headSpace func(tokens, width, vocabulary int) int
	dropout   func(y, x kernels.Buffer, p float32, key kernels.Key) error
	normal    func(x kernels.Buffer, std float32, key kernels.Key) error
	squares   func(x kernels.Buffer) (float64, error)
	adam      func(op kernels.AdamW) error
	release   func(b kernels.Buffer) (int64, error)
	readFloat func(dst []float32, src kernels.Buffer) error
	lend      func(b kernels.Buffer) ([]byte, error)
	quantize  func(op *kernels.Quantize)
	decode    func(dst kernels.Buffer) // called after the operation
	product   func(op *kernels.QuantizedMatMul)
	allocIn   func(scope memory.Scope, t kernels.DType, n int) (kernels.Buffer, error)
	slice     func(b kernels.Buffer, first, n int) (kernels.Buffer, error)
	parts     func(sums []float64, g kernels.Buffer, n, part int) error
}

func (d *broken) Slice(b kernels.Buffer, first, n int) (kernels.Buffer, error) {
	return or(d.slice, d.Host.Slice)(b, first, n)
}
func (d *broken) PartSquares(sums []float64, g kernels.Buffer, n, part int) error {
	return or(d.parts, d.Host.PartSquares)(sums, g, n, part)
}
func (d *broken) Alloc(class memory.Class, t kernels.DType, n int) (kernels.Buffer, error) {
	b, err := d.Host.Alloc(class, t, n)
	d.beside[d.last], d.last = b, b
	return b, err
}

// flip changes the lowest bit of element i.
func (d *broken) flip(b kernels.Buffer, i int) {
	x := make([]float32, b.N)
	_ = d.Host.ReadFloat32(x, b)
	x[i] = math.Float32frombits(math.Float32bits(x[i]) ^ 1)
	_ = d.Host.WriteFloat32(b, x)
}

// scale multiplies all elements by a factor.
func (d *broken) scale(b kernels.Buffer, by float32) {
	x := make([]float32, b.N)
	_ = d.Host.ReadFloat32(x, b)
	for i := range x {
		x[i] *= by
	}
	_ = d.Host.WriteFloat32(b, x)
}

func (d *broken) MatMul(op kernels.MatMul) error { return or(d.matmul, d.Host.MatMul)(op) }
func (d *broken) SumRows(dst, x kernels.Buffer, rows, cols int, accumulate bool) error {
	return or(d.sumRows, d.Host.SumRows)(dst, x, rows, cols, accumulate)
}
func (d *broken) Add(dst, src kernels.Buffer) error    { return or(d.add, d.Host.Add)(dst, src) }
func (d *broken) LayerNorm(op kernels.LayerNorm) error { return or(d.norm, d.Host.LayerNorm)(op) }
func (d *broken) GELU(y, x kernels.Buffer) error       { return or(d.gelu, d.Host.GELU)(y, x) }
func (d *broken) SumSquares(x kernels.Buffer) (float64, error) {
	return or(d.squares, d.Host.SumSquares)(x)
}
func (d *broken) AdamW(op kernels.AdamW) error { return or(d.adam, d.Host.AdamW)(op) }
func (d *broken) LayerNormBackward(op kernels.LayerNormBackward) error {
	return or(d.normBack, d.Host.LayerNormBackward)(op)
}
func (d *broken) GELUBackward(dx, dy, x kernels.Buffer) error {
	return or(d.geluBack, d.Host.GELUBackward)(dx, dy, x)
}
func (d *broken) CausalAttention(op kernels.CausalAttention) error {
	return or(d.attention, d.Host.CausalAttention)(op)
}
func (d *broken) CausalAttentionBackward(op kernels.CausalAttentionBackward) error {
	return or(d.attBack, d.Host.CausalAttentionBackward)(op)
}
func (d *broken) AttentionWorkspace(tokens, heads, dim int) (int, int) {
	return or(d.attSpace, d.Host.AttentionWorkspace)(tokens, heads, dim)
}
func (d *broken) EmbedBackward(op kernels.EmbedBackward) error {
	return or(d.embedBack, d.Host.EmbedBackward)(op)
}
func (d *broken) HeadLoss(op kernels.HeadLoss) (float64, float64, error) {
	return or(d.loss, d.Host.HeadLoss)(op)
}
func (d *broken) HeadLossBackward(op kernels.HeadLossBackward) error {
	return or(d.lossBack, d.Host.HeadLossBackward)(op)
}
func (d *broken) HeadWorkspace(tokens, width, vocabulary int) int {
	return or(d.headSpace, d.Host.HeadWorkspace)(tokens, width, vocabulary)
}
func (d *broken) Dropout(y, x kernels.Buffer, p float32, key kernels.Key) error {
	return or(d.dropout, d.Host.Dropout)(y, x, p, key)
}
func (d *broken) Normal(x kernels.Buffer, std float32, key kernels.Key) error {
	return or(d.normal, d.Host.Normal)(x, std, key)
}
func (d *broken) Release(b kernels.Buffer) (int64, error) {
	return or(d.release, d.Host.Release)(b)
}
func (d *broken) ReadFloat32(dst []float32, src kernels.Buffer) error {
	return or(d.readFloat, d.Host.ReadFloat32)(dst, src)
}
func (d *broken) AllocIn(scope memory.Scope, t kernels.DType, n int) (kernels.Buffer, error) {
	return or(d.allocIn, d.Host.AllocIn)(scope, t, n)
}

func (d *broken) Lend(b kernels.Buffer) ([]byte, error) {
	return or(d.lend, d.Host.Lend)(b)
}

func (d *broken) Quantize(op kernels.Quantize) error {
	if d.quantize != nil {
		d.quantize(&op)
	}
	return d.Host.Quantize(op)
}

func (d *broken) Dequantize(dst kernels.Buffer, q kernels.Quantized, transposed bool) error {
	err := d.Host.Dequantize(dst, q, transposed)
	if d.decode != nil {
		d.decode(dst)
	}
	return err
}

func (d *broken) QuantizedMatMul(op kernels.QuantizedMatMul) error {
	if d.product != nil {
		d.product(&op)
	}
	return d.Host.QuantizedMatMul(op)
}

// or returns f, or sound if f is nil.
func or[F any](f, sound F) F {
	if reflect.ValueOf(f).IsNil() {
		return sound
	}
	return f
}

// faults lists devices with one fault each, and the cases that must detect them.
var faults = []struct {
	name, found string
	spoil       func(d *broken)
}{
	{"MatMul ignores Accumulate", "matmul", func(d *broken) {
		d.matmul = func(op kernels.MatMul) error { op.Accumulate = false; return d.Host.MatMul(op) }
	}},
	{"MatMul always accumulates", "matmul", func(d *broken) {
		d.matmul = func(op kernels.MatMul) error { op.Accumulate = true; return d.Host.MatMul(op) }
	}},
	{"MatMul rounds to half the digits", "matmul", func(d *broken) {
		d.matmul = func(op kernels.MatMul) error { err := d.Host.MatMul(op); d.scale(op.C, 1.001); return err }
	}},
	{"MatMul ignores Bias", "matmul/bias", func(d *broken) {
		d.matmul = func(op kernels.MatMul) error { op.Bias = kernels.Buffer{}; return d.Host.MatMul(op) }
	}},
	{"MatMul zeroes C before it refuses", "refusals/buffers", func(d *broken) {
		d.matmul = func(op kernels.MatMul) error { _ = d.Host.Zero(op.C); return d.Host.MatMul(op) }
	}},
	{"MatMul depends on the call before", "repeatable", func(d *broken) {
		d.matmul = func(op kernels.MatMul) error {
			err := d.Host.MatMul(op)
			if d.calls++; d.calls%2 == 0 {
				d.flip(op.C, 0)
			}
			return err
		}
	}},
	{"SumRows ignores accumulate", "rows", func(d *broken) {
		d.sumRows = func(dst, x kernels.Buffer, rows, cols int, _ bool) error {
			return d.Host.SumRows(dst, x, rows, cols, false)
		}
	}},
	{"Add leaks a buffer", "elementwise", func(d *broken) {
		d.add = func(dst, src kernels.Buffer) error {
			_, _ = d.Host.Alloc(memory.Workspace, kernels.Float32, 4)
			return d.Host.Add(dst, src)
		}
	}},
	{"LayerNorm writes past the end", "layernorm", func(d *broken) {
		d.norm = func(op kernels.LayerNorm) error {
			err := d.Host.LayerNorm(op)
			d.flip(d.beside[op.Y], 0)
			return err
		}
	}},
	{"LayerNorm has another epsilon", "layernorm", func(d *broken) {
		d.norm = func(op kernels.LayerNorm) error {
			err := d.Host.LayerNorm(op)
			d.scale(op.RStd, 1.00001)
			return err
		}
	}},
	{"LayerNormBackward ignores AccumulateBeta", "layernorm/backward", func(d *broken) {
		d.normBack = func(op kernels.LayerNormBackward) error {
			op.AccumulateBeta = false
			return d.Host.LayerNormBackward(op)
		}
	}},
	{"LayerNormBackward uses one Accumulate for both", "layernorm/backward", func(d *broken) {
		d.normBack = func(op kernels.LayerNormBackward) error {
			op.AccumulateBeta = op.AccumulateGamma
			return d.Host.LayerNormBackward(op)
		}
	}},
	{"GELU writes to its operand", "gelu", func(d *broken) {
		d.gelu = func(y, x kernels.Buffer) error { err := d.Host.GELU(y, x); d.flip(x, 0); return err }
	}},
	{"GELUBackward is a little off", "gelu/backward", func(d *broken) {
		d.geluBack = func(dx, dy, x kernels.Buffer) error {
			err := d.Host.GELUBackward(dx, dy, x)
			d.scale(dx, 1.0002)
			return err
		}
	}},
	{"attention is not causal", "attention/causal", func(d *broken) {
		d.attention = func(op kernels.CausalAttention) error {
			x := make([]float32, op.QKV.N)
			_ = d.Host.ReadFloat32(x, op.QKV)
			err := d.Host.CausalAttention(op)
			if math.Float32bits(x[len(x)-1])&1 == 1 { // the last token has the smallest influence
				d.flip(op.Out, 0)
			}
			return err
		}
	}},
	{"attention forgets the scale", "attention", func(d *broken) {
		d.attention = func(op kernels.CausalAttention) error {
			x := make([]float32, op.QKV.N)
			_ = d.Host.ReadFloat32(x, op.QKV)
			d.scale(op.QKV, float32(math.Sqrt(math.Sqrt(float64(op.HeadDim)))))
			err := d.Host.CausalAttention(op)
			_ = d.Host.WriteFloat32(op.QKV, x)
			return err
		}
	}},
	{"the attention's backward omits the last token", "attention/backward", func(d *broken) {
		d.attBack = func(op kernels.CausalAttentionBackward) error {
			x := make([]float32, op.DQKV.N)
			_ = d.Host.ReadFloat32(x, op.DQKV)
			if err := d.Host.CausalAttentionBackward(op); err != nil {
				return err
			}
			y := make([]float32, op.DQKV.N)
			_ = d.Host.ReadFloat32(y, op.DQKV)
			copy(x, y[:len(y)-3*op.Heads*op.HeadDim])
			return d.Host.WriteFloat32(op.DQKV, x)
		}
	}},
	{"AttentionWorkspace says one too many", "workspaces", func(d *broken) {
		d.attSpace = func(tokens, heads, dim int) (int, int) {
			forward, backward := d.Host.AttentionWorkspace(tokens, heads, dim)
			return forward + 1, backward
		}
	}},
	{"AttentionWorkspace says one too few", "workspaces", func(d *broken) {
		d.attSpace = func(tokens, heads, dim int) (int, int) {
			forward, backward := d.Host.AttentionWorkspace(tokens, heads, dim)
			return forward, backward - 1
		}
	}},
	{"EmbedBackward keeps the last of equal ids", "embed/backward", func(d *broken) {
		d.embedBack = func(op kernels.EmbedBackward) error {
			if err := d.Host.EmbedBackward(op); err != nil || op.DTable.N == 0 {
				return err
			}
			ids, dx, table := make([]int32, op.IDs.N), make([]float32, op.DX.N), make([]float32, op.DTable.N)
			_ = d.Host.ReadInt32(ids, op.IDs)
			_ = d.Host.ReadFloat32(dx, op.DX)
			for t, id := range ids {
				copy(table[int(id)*op.Width:], dx[t*op.Width:][:op.Width])
			}
			return d.Host.WriteFloat32(op.DTable, table)
		}
	}},
	{"HeadLoss counts tokens, not weights", "head", func(d *broken) {
		d.loss = func(op kernels.HeadLoss) (float64, float64, error) {
			sum, _, err := d.Host.HeadLoss(op)
			return sum, float64(op.Tokens), err
		}
	}},
	{"HeadLossBackward ignores Seed", "head/backward", func(d *broken) {
		d.lossBack = func(op kernels.HeadLossBackward) error { op.Seed = 1; return d.Host.HeadLossBackward(op) }
	}},
	{"HeadLossBackward ignores Accumulate", "head/backward", func(d *broken) {
		d.lossBack = func(op kernels.HeadLossBackward) error {
			op.Accumulate = false
			return d.Host.HeadLossBackward(op)
		}
	}},
	{"HeadLossBackward ignores Gradients", "head/backward", func(d *broken) {
		d.lossBack = func(op kernels.HeadLossBackward) error {
			op.Gradients = false
			return d.Host.HeadLossBackward(op)
		}
	}},
	{"HeadWorkspace holds all logits", "workspaces", func(d *broken) {
		d.headSpace = func(tokens, width, vocabulary int) int { return tokens * vocabulary }
	}},
	{"Dropout ignores the key", "dropout/keys", func(d *broken) {
		d.dropout = func(y, x kernels.Buffer, p float32, _ kernels.Key) error {
			return d.Host.Dropout(y, x, p, kernels.Key{})
		}
	}},
	{"Dropout ignores the microbatch", "dropout/keys", func(d *broken) {
		d.dropout = func(y, x kernels.Buffer, p float32, key kernels.Key) error {
			key.Microbatch = 0
			return d.Host.Dropout(y, x, p, key)
		}
	}},
	{"Dropout draws from a sequence", "dropout/keys", func(d *broken) {
		d.dropout = func(y, x kernels.Buffer, p float32, key kernels.Key) error {
			d.calls++
			key.Step = int64(d.calls)
			return d.Host.Dropout(y, x, p, key)
		}
	}},
	{"Dropout keeps too many", "dropout/rate", func(d *broken) {
		d.dropout = func(y, x kernels.Buffer, p float32, key kernels.Key) error {
			return d.Host.Dropout(y, x, p*0.95, key)
		}
	}},
	{"Dropout forgets to scale", "dropout", func(d *broken) {
		d.dropout = func(y, x kernels.Buffer, p float32, key kernels.Key) error {
			err := d.Host.Dropout(y, x, p, key)
			if err == nil {
				d.scale(y, 1-p)
			}
			return err
		}
	}},
	{"Normal draws a wrong spread", "normal", func(d *broken) {
		d.normal = func(x kernels.Buffer, std float32, key kernels.Key) error {
			return d.Host.Normal(x, std*1.0001, key)
		}
	}},
	{"SumSquares adds up in float32", "sumsquares", func(d *broken) {
		d.squares = func(x kernels.Buffer) (float64, error) {
			s, err := d.Host.SumSquares(x)
			return float64(float32(s)), err
		}
	}},
	{"AdamW does not correct the bias", "adamw", func(d *broken) {
		d.adam = func(op kernels.AdamW) error {
			if op.Step > 0 {
				op.Step += 1000
			}
			return d.Host.AdamW(op)
		}
	}},
	{"AdamW writes to the gradient", "adamw", func(d *broken) {
		d.adam = func(op kernels.AdamW) error { err := d.Host.AdamW(op); d.scale(op.Grad, 0); return err }
	}},
	{"Quantize does not take the given scale", "quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Scale = kernels.Cell{} } }},
	{"Quantize forgets margins", "quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Margin = 0 } }},
	{"Quantize forgets an epsilon", "quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Epsilon = 0 } }},
	{"Quantize takes powers of two", "quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.AnyScale = false } }},
	{"Quantize rounds scales up", "quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Down = false } }},
	{"Quantize rounds to nearest", "quantize/stochastic", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Stochastic = false } }},
	{"Quantize draws with another key", "quantize/stochastic", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Key.Microbatch++ } }},
	{"Quantize writes no tally", "quantize/tally", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Tally = kernels.Cell{} } }},
	{"Dequantize decodes nothing", "dequantize", func(d *broken) { d.decode = func(dst kernels.Buffer) { _ = d.Zero(dst) } }},
	{"QuantizedMatMul does not accumulate", "quantized matmul", func(d *broken) { d.product = func(op *kernels.QuantizedMatMul) { op.Accumulate = false } }},
	{"QuantizedMatMul ignores Bias", "quantized matmul", func(d *broken) { d.product = func(op *kernels.QuantizedMatMul) { op.Bias = kernels.Buffer{} } }},
	{"Release says that nothing was freed", "memory/space", func(d *broken) {
		d.release = func(b kernels.Buffer) (int64, error) { _, err := d.Host.Release(b); return 0, err }
	}},
	{"Release keeps the buffer", "memory/space", func(d *broken) {
		d.release = func(b kernels.Buffer) (int64, error) { return d.Bytes(b), nil }
	}},
	{"AllocIn allocates as for a step's buffers", "memory/scopes", func(d *broken) {
		d.allocIn = func(scope memory.Scope, t kernels.DType, n int) (kernels.Buffer, error) {
			if scope == memory.Metadata {
				return d.Host.Alloc(memory.Workspace, t, n)
			}
			return d.Host.AllocIn(scope, t, n)
		}
	}},
	{"reads past the end are cut short", "memory/copies refused", func(d *broken) {
		d.readFloat = func(dst []float32, src kernels.Buffer) error {
			return d.Host.ReadFloat32(dst[:min(len(dst), src.N)], src)
		}
	}},
	{"Lend returns the next buffer", "memory/lend", func(d *broken) {
		d.lend = func(b kernels.Buffer) ([]byte, error) {
			if beside, ok := d.beside[b]; ok {
				data, err := d.Host.Lend(beside)
				return append(data, make([]byte, 400-len(data))...), err
			}
			return d.Host.Lend(b)
		}
	}},
	{"SumRows adds a sum that begins at 0", "slices/sequences", func(d *broken) {
		d.sumRows = func(dst, x kernels.Buffer, rows, cols int, accumulate bool) error {
			if !accumulate {
				return d.Host.SumRows(dst, x, rows, cols, false)
			}
			to, from := d.Host.Float32s(dst), d.Host.Float32s(x)
			for j := range to {
				var sum float32
				for r := range rows {
					sum += from[r*cols+j]
				}
				to[j] += sum
			}
			return nil
		}
	}},
	{"the sums of parts are in another order", "slices/parts", func(d *broken) {
		d.parts = func(sums []float64, g kernels.Buffer, n, part int) error {
			err := d.Host.PartSquares(sums, g, n, part)
			slices.Reverse(sums)
			return err
		}
	}},
	{"Slice of a view forgets where the view begins", "slices/operands", func(d *broken) {
		whole := map[memory.Handle]kernels.Buffer{}
		d.slice = func(b kernels.Buffer, first, n int) (kernels.Buffer, error) {
			if w, view := whole[b.Handle]; view && w != b {
				b = w
			}
			whole[b.Handle] = b
			return d.Host.Slice(b, first, n)
		}
	}},
	{"a view can be released", "slices/refusals", func(d *broken) {
		d.release = func(b kernels.Buffer) (int64, error) {
			freed, err := d.Host.Release(b)
			if errors.Is(err, kernels.ErrView) {
				return 0, nil
			}
			return freed, err
		}
	}},
	{"Lend allocates", "memory/lend", func(d *broken) {
		d.lend = func(b kernels.Buffer) ([]byte, error) {
			_, _ = d.Host.Alloc(memory.Transfer, b.Type, b.N)
			return d.Host.Lend(b)
		}
	}},
}

func TestFaultsAreFound(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	sound := map[string]bool{} // cases that have passed without a fault
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			found := false
			for _, c := range kerneltest.Cases() {
				if c.Name != f.found {
					continue
				}
				found = true
				if !sound[c.Name] {
					d := &broken{Host: openHost(t).(*kernels.Host), beside: map[kernels.Buffer]kernels.Buffer{}}
					require.NoError(t, c.Check(d), "without the fault")
					require.NoError(t, d.Close())
					sound[c.Name] = true
				}
				d := &broken{Host: openHost(t).(*kernels.Host), beside: map[kernels.Buffer]kernels.Buffer{}}
				f.spoil(d)
				err := c.Check(d)
				require.Error(t, err)
				t.Log(err)
				require.NoError(t, d.Close())
			}
			require.True(t, found, "no case is called %q", f.found)
		})
	}
}
