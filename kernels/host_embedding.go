package kernels

import "github.com/weir-ml/weir/internal/vector"

// embedViews are the opened buffers of Embed.
type embedViews struct {
	ids                 []int32
	table, positions, x []float32
}

func openEmbed(c *call, op Embed) (v embedViews) {
	c.dimension("Tokens", op.Tokens)
	c.dimension("Width", op.Width)
	c.dimension("Vocabulary", op.Vocabulary)
	v.ids = c.ints("IDs", op.IDs, op.Tokens)
	v.table = c.floats("Table", op.Table, size(op.Vocabulary, op.Width))
	v.positions = c.roomy("Positions", op.Positions, size(op.Tokens, op.Width))
	v.x = c.floats("X", op.X, size(op.Tokens, op.Width))
	c.apart("X", op.X, op.IDs, op.Table, op.Positions)
	return v
}

// inRange demands that every id is the number of a row of the vocabulary.
func (c *call) inRange(name string, ids []int32, vocabulary int) {
	for t, id := range ids {
		if id < 0 || int(id) >= vocabulary {
			c.fault(ErrShape, "%s[%d] is %d, the vocabulary has %d", name, t, id, vocabulary)
			return
		}
	}
}

// Embed looks rows up and adds the rows of their positions.
func (h *Host) Embed(op Embed) error {
	c := h.call("Embed")
	v := openEmbed(&c, op)
	c.inRange("IDs", v.ids, op.Vocabulary)
	if c.err != nil {
		return c.err
	}
	t := embedTask{v, h.vector, op.Width, partsOf(len(v.x))}
	launch(h, &h.operations.embed, t, t.parts)
	return nil
}

// embedTask is Embed in parts of tokens.
type embedTask struct {
	embedViews
	set          vector.Set
	width, parts int
}

func (t *embedTask) part(i int, _ *worker) {
	begin, end := share(len(t.ids), 1, i, t.parts)
	for at := begin; at < end; at++ {
		row := at * t.width
		t.set.Sum(t.x[row:][:t.width], t.table[int(t.ids[at])*t.width:], t.positions[row:])
	}
}

// embedGrads are the opened buffers of EmbedBackward. What is not computed is nil.
type embedGrads struct {
	ids                    []int32
	dx, dtable, dpositions []float32
}

func openEmbedBackward(c *call, op EmbedBackward) (v embedGrads) {
	c.dimension("Tokens", op.Tokens)
	c.dimension("Width", op.Width)
	c.dimension("Vocabulary", op.Vocabulary)
	v.ids = c.ints("IDs", op.IDs, op.Tokens)
	v.dx = c.floats("DX", op.DX, size(op.Tokens, op.Width))
	v.dtable = c.optional("DTable", op.DTable, size(op.Vocabulary, op.Width))
	if op.DPositions != (Buffer{}) {
		x := c.roomy("DPositions", op.DPositions, size(op.Tokens, op.Width))
		v.dpositions = x[:cap(x)] // what lies past the last token is zeroed too
	}
	c.apart("DTable", op.DTable, op.IDs, op.DX, op.DPositions)
	c.apart("DPositions", op.DPositions, op.IDs, op.DX)
	return v
}

// EmbedBackward adds in ascending order of tokens.
func (h *Host) EmbedBackward(op EmbedBackward) error {
	c := h.call("EmbedBackward")
	v := openEmbedBackward(&c, op)
	c.inRange("IDs", v.ids, op.Vocabulary)
	if c.err != nil {
		return c.err
	}
	if !op.AccumulateTable {
		h.zero(v.dtable)
	}
	if !op.AccumulatePositions {
		h.zero(v.dpositions)
	}
	if v.dtable != nil {
		t := embedGradTask{v, h.vector, op.Width, h.columnParts(len(v.dx), op.Width)}
		launch(h, &h.operations.embedGrad, t, t.parts)
	}
	if v.dpositions != nil {
		h.add(v.dpositions[:len(v.dx)], v.dx)
	}
	return nil
}

// embedGradTask adds to the gradient of the table, in parts of columns: tokens may
// share a row.
type embedGradTask struct {
	embedGrads
	set          vector.Set
	width, parts int
}

func (t *embedGradTask) part(i int, _ *worker) {
	begin, end := share(t.width, 16, i, t.parts)
	for at, id := range t.ids {
		t.set.Add(t.dtable[int(id)*t.width+begin:][:end-begin], t.dx[at*t.width+begin:])
	}
}
