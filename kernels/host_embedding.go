package kernels

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
	for t, id := range v.ids {
		h.vector.Sum(v.x[t*op.Width:][:op.Width], v.table[int(id)*op.Width:], v.positions[t*op.Width:])
	}
	return nil
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
		clear(v.dtable)
	}
	if !op.AccumulatePositions {
		clear(v.dpositions)
	}
	if v.dtable != nil {
		for t, id := range v.ids {
			h.vector.Add(v.dtable[int(id)*op.Width:][:op.Width], v.dx[t*op.Width:][:op.Width])
		}
	}
	if v.dpositions != nil {
		h.vector.Add(v.dpositions[:len(v.dx)], v.dx)
	}
	return nil
}
