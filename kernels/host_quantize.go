package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/float8"
	"github.com/weir-ml/weir/internal/vector"
)

// quantized opens a quantized matrix of rows×cols.
func (c *call) quantized(name string, q Quantized, rows, cols int) (m float8.Matrix) {
	if !q.Encoding.Valid() {
		c.fault(ErrShape, "%s is in %s, which there is not", name, q.Encoding)
		return m
	}
	if q.Rows != rows || q.Cols != cols {
		c.fault(ErrShape, "%s is %d×%d, the operation has %d×%d", name, q.Rows, q.Cols, rows, cols)
		return m
	}
	if rows <= 0 || cols <= 0 {
		return m // has been said
	}
	data := c.bytes(name, q.Data, q.Encoding.Bytes(rows, cols))
	if data == nil {
		return m
	}
	return float8.Open(data, float8.Scaling(q.Encoding.Scaling), formats[q.Encoding.Format], rows, cols)
}

// cell opens words elements of the cell of a slab, nil where there is none.
func cell[E float32 | int32](c *call, name string, at Cell, want DType, words int) []E {
	if at == (Cell{}) {
		return nil
	}
	x := view[E](c, name, at.Buffer, want)
	if x == nil {
		return nil
	}
	if cells := len(x) / words; at.Index < 0 || at.Index >= cells {
		c.fault(ErrShape, "%s is cell %d of %d", name, at.Index, cells)
		return nil
	}
	return x[at.Index*words:][:words]
}

// quantizeViews are the opened buffers of Quantize. What is not wanted has no codes.
type quantizeViews struct {
	x                   []float32
	rowwise, columnwise float8.Matrix
	scale               []float32
	tally               []int32
}

func openQuantize(c *call, op Quantize) (v quantizeViews) {
	c.dimension("Rows", op.Rows)
	c.dimension("Cols", op.Cols)
	v.x = c.floats("X", op.X, size(op.Rows, op.Cols))
	row, column := op.Rowwise != (Quantized{}), op.Columnwise != (Quantized{})
	if row {
		v.rowwise = c.quantized("Rowwise", op.Rowwise, op.Rows, op.Cols)
	}
	if column {
		v.columnwise = c.quantized("Columnwise", op.Columnwise, op.Cols, op.Rows)
	}
	encoding := op.Rowwise.Encoding
	switch {
	case !row && !column:
		c.fault(ErrShape, "neither Rowwise nor Columnwise is there")
	case !row:
		encoding = op.Columnwise.Encoding
	case column && op.Columnwise.Encoding != encoding:
		c.fault(ErrShape, "Rowwise is in %s, Columnwise in %s", encoding, op.Columnwise.Encoding)
	}
	if encoding.Scaling != PerTensor && (op.Scale != Cell{} || op.Margin != 0) {
		c.fault(ErrShape, "Scale or Margin is there, which %s does not take", encoding)
	}
	if op.Margin < 0 || op.Margin > 64 {
		c.fault(ErrValue, "Margin is %d, want 0 to 64", op.Margin)
	}
	if !(op.Epsilon >= 0) || math.IsInf(float64(op.Epsilon), 0) {
		c.fault(ErrValue, "Epsilon is %v, want a finite number of at least 0", op.Epsilon)
	}
	v.scale = cell[float32](c, "Scale", op.Scale, Float32, 1)
	v.tally = cell[int32](c, "Tally", op.Tally, Int32, TallyWords)
	c.apart("Rowwise", op.Rowwise.Data, op.X, op.Columnwise.Data, op.Scale.Buffer, op.Tally.Buffer)
	c.apart("Columnwise", op.Columnwise.Data, op.X, op.Scale.Buffer, op.Tally.Buffer)
	c.apart("Tally", op.Tally.Buffer, op.X) // Scale may be a cell of the same slab
	return v
}

// Quantize quantizes in parts of rows and of columns. Where the scale of the tensor is its
// own there is a pass over X for it first.
func (h *Host) Quantize(op Quantize) error {
	c := h.call("Quantize")
	v := openQuantize(&c, op)
	if c.err != nil {
		return c.err
	}
	t := quantizeTask{quantizeViews: v, set: h.float8(), parts: partsOf(len(v.x)), tallies: h.tallies}
	t.rule = float8.Rule{Epsilon: op.Epsilon, AnyScale: op.AnyScale, Down: op.Down}
	if op.Stochastic {
		t.stochastic, t.draws = true, op.Key.philox()
	}
	clear(t.tallies)
	m := &v.rowwise
	if m.Codes == nil {
		m = &v.columnwise
	}
	switch {
	case v.scale != nil:
		t.rule.Scale = v.scale[0]
	case m.Scaling == float8.PerTensor:
		most := float32(math.Ldexp(float64(m.Format.Greatest()), -op.Margin))
		t.rule.Scale = max(leastScale, float8.ScaleOf(h.amax(t), most, op.Epsilon, !op.AnyScale))
	case m.Scaling == float8.NV16:
		t.rule.Scale = float8.TensorNV(h.amax(t))
	}
	t.pass, t.counted = quantizeRows, v.rowwise.Codes != nil
	if t.counted {
		launch(h, &h.operations.quantize, t, t.parts)
	}
	if v.columnwise.Codes != nil {
		t.pass, t.counted = quantizeColumns, !t.counted
		launch(h, &h.operations.quantize, t, t.parts)
	}
	if v.tally != nil {
		var all float8.Tally
		for _, tally := range t.tallies {
			all.Merge(tally)
		}
		enter(v.tally, all)
	}
	return nil
}

// leastScale is the least scale of a tensor: its reciprocal is a normal number.
const leastScale = 0x1p-126

// amax returns the greatest magnitude of the source.
func (h *Host) amax(t quantizeTask) float32 {
	t.pass, t.counted = quantizeAmax, true
	launch(h, &h.operations.quantize, t, t.parts)
	var all float8.Tally
	for _, tally := range t.tallies {
		all.Merge(tally)
	}
	return all.Greatest()
}

// float8 returns the instruction set for package float8.
func (h *Host) float8() float8.Set {
	switch h.instructions {
	case AVX512:
		return float8.AVX512
	case AVX2:
		return float8.AVX2
	}
	return float8.Portable
}

// quantizePass is what a quantizeTask does.
type quantizePass uint8

const (
	quantizeAmax quantizePass = iota
	quantizeRows
	quantizeColumns
)

// quantizeTask is one pass of Quantize.
type quantizeTask struct {
	quantizeViews
	set        float8.Set
	rule       float8.Rule
	stochastic bool
	draws      vector.Philox
	pass       quantizePass
	counted    bool           // what is met goes to tallies
	tallies    []float8.Tally // by worker
	parts      int
}

func (t *quantizeTask) part(i int, w *worker) {
	rule := t.rule
	if t.stochastic {
		rule.Random = &t.draws
	}
	var met float8.Tally
	switch t.pass {
	case quantizeAmax:
		begin, end := share(len(t.x), 16, i, t.parts)
		met.Amax = t.set.Amax(t.x[begin:end])
	case quantizeRows:
		begin, end := share(t.rowwise.Rows, step(&t.rowwise, 1), i, t.parts)
		met = t.set.QuantizeRows(&t.rowwise, t.x, &rule, begin, end)
	case quantizeColumns:
		begin, end := share(t.columnwise.Rows, step(&t.columnwise, 16), i, t.parts)
		met = t.set.QuantizeColumns(&t.columnwise, t.x, &rule, begin, end)
	}
	if t.counted {
		t.tallies[w.index].Merge(met)
	}
}

// step is how many rows of a quantized matrix go together, at least so many.
func step(m *float8.Matrix, least int) int {
	if m.Scaling == float8.Tiles128 {
		return float8.BlockTile
	}
	return least
}

// enter merges what was met into a tally.
func enter(words []int32, t float8.Tally) {
	words[0] = max(words[0], int32(t.Amax))
	if t.Least != 0 && (words[1] == 0 || int32(t.Least) < words[1]) {
		words[1] = int32(t.Least)
	}
	words[2] = max(words[2], int32(t.Most))
	words[3] = int32(min(int64(words[3])+int64(t.NonFinite), math.MaxInt32))
	for i, more := range []int{t.Saturated, t.Underflowed} {
		at := words[4+2*i:]
		count := uint64(uint32(at[1]))<<32 | uint64(uint32(at[0])) + uint64(more)
		at[0], at[1] = int32(uint32(count)), int32(count>>32)
	}
}

// openDequantize opens the buffers of Dequantize.
func openDequantize(c *call, dst Buffer, q Quantized) (out []float32, m float8.Matrix) {
	c.dimension("Rows", q.Rows)
	c.dimension("Cols", q.Cols)
	out = c.floats("dst", dst, size(q.Rows, q.Cols))
	m = c.quantized("q", q, q.Rows, q.Cols)
	c.apart("dst", dst, q.Data)
	return out, m
}

// Dequantize decodes in parts of rows, or of columns where transposed is set.
func (h *Host) Dequantize(dst Buffer, q Quantized, transposed bool) error {
	c := h.call("Dequantize")
	out, m := openDequantize(&c, dst, q)
	if c.err != nil {
		return c.err
	}
	t := dequantizeTask{m: m, out: out, transposed: transposed, set: h.float8(), parts: partsOf(len(out))}
	launch(h, &h.operations.dequantize, t, t.parts)
	return nil
}

// dequantizeTask is Dequantize.
type dequantizeTask struct {
	m          float8.Matrix
	out        []float32
	transposed bool
	set        float8.Set
	parts      int
}

func (t *dequantizeTask) part(i int, _ *worker) {
	if t.transposed {
		begin, end := share(t.m.Cols, 128, i, t.parts)
		t.set.DequantizeTransposed(t.out, &t.m, begin, end)
		return
	}
	begin, end := share(t.m.Rows, 1, i, t.parts)
	t.set.Dequantize(t.out, &t.m, begin, end)
}
