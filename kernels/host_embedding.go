package kernels

// inRange requires that every id is the index of a row of the vocabulary.
func (c *call) inRange(name string, ids []int32, vocabulary int) {
	if c.null {
		return // the contents do not matter
	}
	for t, id := range ids {
		if id < 0 || int(id) >= vocabulary {
			c.fault(ErrShape, "%s[%d] is %d, the vocabulary has %d", name, t, id, vocabulary)
			return
		}
	}
}

// Embed looks up the tokens' rows and adds the rows of their positions.
func (h *host) Embed(op Embed) error {
	c := h.call("Embed")
	c.dimensions("Tokens Width Vocabulary", op.Tokens, op.Width, op.Vocabulary)
	t := embedTask{
		ids:       exactly[int32](&c, "IDs", op.IDs, op.Tokens),
		table:     c.floats("Table", op.Table, size(op.Vocabulary, op.Width)),
		positions: roomy[float32](&c, "Positions", op.Positions, size(op.Tokens, op.Width)),
		x:         c.floats("X", op.X, size(op.Tokens, op.Width)),
		width:     op.Width,
	}
	c.apart("X", op.X, op.IDs, op.Table, op.Positions)
	c.inRange("IDs", t.ids, op.Vocabulary)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.embed, t, partsOf(len(t.x)))
	return nil
}

// embedTask computes Embed. Its parts are ranges of tokens.
type embedTask struct {
	ids                 []int32
	table, positions, x []float32
	width               int
}

func (t *embedTask) part(i, parts int, w *worker) {
	begin, end := share(len(t.ids), 1, i, parts)
	for at := begin; at < end; at++ {
		row := at * t.width
		w.vector.Sum(t.x[row:][:t.width], t.table[int(t.ids[at])*t.width:], t.positions[row:])
	}
}

// EmbedBackward adds the gradients of the tokens in ascending order.
func (h *host) EmbedBackward(op EmbedBackward) error {
	c := h.call("EmbedBackward")
	c.dimensions("Tokens Width Vocabulary", op.Tokens, op.Width, op.Vocabulary)
	t := embedGradTask{
		ids:    exactly[int32](&c, "IDs", op.IDs, op.Tokens),
		dx:     c.floats("DX", op.DX, size(op.Tokens, op.Width)),
		dtable: c.optional("DTable", op.DTable, size(op.Vocabulary, op.Width)),
		width:  op.Width,
	}
	var dpositions []float32
	if op.DPositions != (Buffer{}) {
		x := roomy[float32](&c, "DPositions", op.DPositions, size(op.Tokens, op.Width))
		dpositions = x[:cap(x)] // the rows past the last token are zeroed too
	}
	c.apart("DTable", op.DTable, op.IDs, op.DX, op.DPositions)
	c.apart("DPositions", op.DPositions, op.IDs, op.DX)
	c.inRange("IDs", t.ids, op.Vocabulary)
	if c.done() {
		return c.err
	}
	if !op.AccumulateTable {
		h.zero(t.dtable)
	}
	if !op.AccumulatePositions {
		h.zero(dpositions)
	}
	if t.dtable != nil {
		launch(h, &h.operations.embedGrad, t, h.columnParts(len(t.dx), op.Width))
	}
	if dpositions != nil {
		h.elements(elementsTask{dst: dpositions[:len(t.dx)], x: t.dx, run: addElements})
	}
	return nil
}

// embedGradTask accumulates the gradient of the table. Its parts are ranges of columns, because tokens may
// share a row.
type embedGradTask struct {
	ids        []int32
	dx, dtable []float32
	width      int
}

func (t *embedGradTask) part(i, parts int, w *worker) {
	begin, end := share(t.width, 16, i, parts)
	for at, id := range t.ids {
		w.vector.Add(t.dtable[int(id)*t.width+begin:][:end-begin], t.dx[at*t.width+begin:])
	}
}
