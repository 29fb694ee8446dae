package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// quantized opens a quantized rows×cols matrix.
func (c *call) quantized(name string, q Quantized, rows, cols int) (m float8.Matrix) {
	if !q.Encoding.Valid() {
		c.fault(ErrShape, "%s is in %s, which is not a valid encoding", name, q.Encoding)
		return m
	}
	if q.Rows != rows || q.Cols != cols {
		c.fault(ErrShape, "%s is %d×%d, want %d×%d", name, q.Rows, q.Cols, rows, cols)
		return m
	}
	if rows <= 0 || cols <= 0 {
		return m // the fault has been reported
	}
	data := exactly[uint8](c, name, q.Data, q.Encoding.Bytes(rows, cols))
	if data == nil {
		return m
	}
	return float8.Open(data, float8.Scaling(q.Encoding.Scaling), formats[q.Encoding.Format], rows, cols)
}

// cell opens a cell of words elements in a slab. It returns nil for the zero Cell.
func cell[E number](c *call, name string, at Cell, words int) []E {
	if at == (Cell{}) {
		return nil
	}
	x := view[E](c, name, at.Buffer)
	if cells := at.Buffer.N / words; at.Index < 0 || at.Index >= cells {
		c.fault(ErrShape, "%s is cell %d of a slab of %d", name, at.Index, cells)
		return nil
	}
	if x == nil {
		return nil
	}
	return x[at.Index*words:][:words]
}

func openQuantize(c *call, op Quantize) (t quantizeTask) {
	c.dimensions("Rows Cols", op.Rows, op.Cols)
	t.x = c.floats("X", op.X, size(op.Rows, op.Cols))
	row, column := op.Rowwise != (Quantized{}), op.Columnwise != (Quantized{})
	if row {
		t.rowwise = c.quantized("Rowwise", op.Rowwise, op.Rows, op.Cols)
	}
	if column {
		t.columnwise = c.quantized("Columnwise", op.Columnwise, op.Cols, op.Rows)
	}
	encoding := op.Rowwise.Encoding
	switch {
	case !row && !column:
		c.fault(ErrShape, "Rowwise and Columnwise are both zero")
	case !row:
		encoding = op.Columnwise.Encoding
	case column && op.Columnwise.Encoding != encoding:
		c.fault(ErrShape, "Rowwise is in %s, but Columnwise is in %s", encoding, op.Columnwise.Encoding)
	}
	if encoding.Scaling != PerTensor && (op.Scale != Cell{} || op.Margin != 0) {
		c.fault(ErrShape, "Scale or Margin is set, but %s uses neither", encoding)
	}
	if op.Margin < 0 || op.Margin > 64 {
		c.fault(ErrValue, "Margin is %d, want 0 to 64", op.Margin)
	}
	if !(op.Epsilon >= 0) || math.IsInf(float64(op.Epsilon), 0) {
		c.fault(ErrValue, "Epsilon is %v, want a finite number of at least 0", op.Epsilon)
	}
	t.scale = cell[float32](c, "Scale", op.Scale, 1)
	t.tally = cell[int32](c, "Tally", op.Tally, TallyWords)
	c.apart("Rowwise", op.Rowwise.Data, op.X, op.Columnwise.Data, op.Scale.Buffer, op.Tally.Buffer)
	c.apart("Columnwise", op.Columnwise.Data, op.X, op.Scale.Buffer, op.Tally.Buffer)
	c.apart("Tally", op.Tally.Buffer, op.X) // Scale may be a cell of the same slab
	return t
}

// Quantize is divided by rows for Rowwise and by columns for Columnwise. If it has to compute the
// tensor's scale, it makes a pass over X first.
func (h *host) Quantize(op Quantize) error {
	c := h.call("Quantize")
	t := openQuantize(&c, op)
	t.tallies = h.tallies
	if c.done() {
		return c.err
	}
	parts := partsOf(len(t.x))
	t.rule = float8.Rule{Epsilon: op.Epsilon, AnyScale: op.AnyScale, Down: op.Down}
	if op.Stochastic {
		t.stochastic, t.draws = true, op.Key.philox()
	}
	clear(t.tallies)
	m := &t.rowwise
	if m.Codes == nil {
		m = &t.columnwise
	}
	switch {
	case t.scale != nil:
		t.rule.Scale = t.scale[0]
	case m.Scaling == float8.PerTensor:
		most := float32(math.Ldexp(float64(m.Format.Greatest()), -op.Margin))
		t.rule.Scale = max(minScale, float8.ScaleOf(h.amax(t, parts), most, op.Epsilon, !op.AnyScale))
	case m.Scaling == float8.NV16:
		t.rule.Scale = float8.TensorNV(h.amax(t, parts))
	}
	t.pass, t.counted = quantizeRows, t.rowwise.Codes != nil
	if t.counted {
		launch(h, &h.operations.quantize, t, parts)
	}
	if t.columnwise.Codes != nil {
		t.pass, t.counted = quantizeColumns, !t.counted
		launch(h, &h.operations.quantize, t, parts)
	}
	if t.tally != nil {
		var all float8.Tally
		for _, tally := range t.tallies {
			all.Merge(tally)
		}
		enter(t.tally, all)
	}
	return nil
}

// minScale is the smallest scale that a tensor may have. Its reciprocal is a normal number.
const minScale = 0x1p-126

// amax returns the greatest magnitude of an element of X.
func (h *host) amax(t quantizeTask, parts int) float32 {
	t.pass, t.counted = quantizeAmax, true
	launch(h, &h.operations.quantize, t, parts)
	var all float8.Tally
	for _, tally := range t.tallies {
		all.Merge(tally)
	}
	return all.Greatest()
}

// quantizePass selects the work of a quantizeTask.
type quantizePass uint8

const (
	quantizeAmax quantizePass = iota
	quantizeRows
	quantizeColumns
)

// quantizeTask is one pass of Quantize.
type quantizeTask struct {
	x                   []float32
	rowwise, columnwise float8.Matrix // without codes if not requested
	scale               []float32
	tally               []int32

	rule       float8.Rule
	stochastic bool
	draws      vector.Philox
	pass       quantizePass
	counted    bool           // elements are counted in tallies
	tallies    []float8.Tally // by worker
}

func (t *quantizeTask) part(i, parts int, w *worker) {
	rule := t.rule
	if t.stochastic {
		rule.Random = &t.draws
	}
	var met float8.Tally
	switch t.pass {
	case quantizeAmax:
		begin, end := share(len(t.x), 16, i, parts)
		met.Amax = float8.Set(w.vector).Amax(t.x[begin:end])
	case quantizeRows:
		begin, end := share(t.rowwise.Rows, step(&t.rowwise, 1), i, parts)
		met = float8.Set(w.vector).QuantizeRows(&t.rowwise, t.x, &rule, begin, end)
	case quantizeColumns:
		begin, end := share(t.columnwise.Rows, step(&t.columnwise, 16), i, parts)
		met = float8.Set(w.vector).QuantizeColumns(&t.columnwise, t.x, &rule, begin, end)
	}
	if t.counted {
		t.tallies[w.index].Merge(met)
	}
}

// step returns the number of rows of m that are quantized together. It is at least least.
func step(m *float8.Matrix, least int) int {
	if m.Scaling == float8.Tiles128 {
		return float8.BlockTile
	}
	return least
}

// enter merges a tally into the words of its cell.
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

// Dequantize is divided by rows, or by columns if transposed is set.
func (h *host) Dequantize(dst Buffer, q Quantized, transposed bool) error {
	c := h.call("Dequantize")
	c.dimensions("Rows Cols", q.Rows, q.Cols)
	t := dequantizeTask{out: c.floats("dst", dst, size(q.Rows, q.Cols)), m: c.quantized("q", q, q.Rows, q.Cols), transposed: transposed}
	c.apart("dst", dst, q.Data)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.dequantize, t, partsOf(len(t.out)))
	return nil
}

// dequantizeTask computes Dequantize.
type dequantizeTask struct {
	m          float8.Matrix
	out        []float32
	transposed bool
}

func (t *dequantizeTask) part(i, parts int, w *worker) {
	if t.transposed {
		begin, end := share(t.m.Cols, 128, i, parts)
		float8.Set(w.vector).DequantizeTransposed(t.out, &t.m, begin, end)
		return
	}
	begin, end := share(t.m.Rows, 1, i, parts)
	float8.Set(w.vector).Dequantize(t.out, &t.m, begin, end)
}
