package transformer

import (
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// ErrTooLong is returned for a sequence longer than Config.Context.
var ErrTooLong = errors.New("transformer: the sequence is longer than the context")

// embedding converts tokens to hidden states. It saves nothing for B. Its input has no gradient,
// so I only keeps the gradient of the output for W.
type embedding struct {
	stage
	vocabulary, context int
	tableUse            batchctx.Param
	positionsUse        batchctx.Param
	dropout             dropout
	tokens              batchctx.Part
	gradHidden          batchctx.Slot // I leaves it for W
}

// tableName is the name of the embedding's table, which is also the head's unless Config.Untied
// is set.
const tableName = "embedding.weight"

func (b *builder) embedding() *embedding {
	e := &embedding{vocabulary: b.cfg.Vocabulary, context: b.cfg.Context, dropout: b.cfg.dropout("embedding.dropout")}
	e.tableUse = b.matrix(&e.stage, tableName, standardDeviation, b.cfg.Vocabulary, b.cfg.Width)
	e.positionsUse = b.matrix(&e.stage, "positions.weight", standardDeviation, b.cfg.Context, b.cfg.Width)
	e.dev, e.width, e.packed = b.dev, b.cfg.Width, b.packed
	e.Name = "embedding"
	e.Outputs(hidden)
	e.tokens = e.Part(Parts[0], batchctx.AtForward, batchctx.AtWeight)
	e.gradHidden = e.Slot("gradient of hidden")
	return e
}

func (e *embedding) forward(c *call, _, out []kernels.Buffer) {
	tokens := c.mb.Part(e.tokens)
	spans := c.spans(tokens.N)
	for _, s := range spans {
		if s.tokens > e.context {
			c.mb.Check(fmt.Errorf("%w: %d tokens, Config.Context is %d", ErrTooLong, s.tokens, e.context))
		}
	}
	x := c.alloc(memory.Activation, tokens.N*e.width)
	for _, s := range spans {
		c.mb.Check(e.dev.Embed(kernels.Embed{
			IDs: c.rows(tokens, s, 1), Table: c.mb.Weight(e.tableUse), Positions: c.mb.Weight(e.positionsUse), X: c.rows(x, s, e.width),
			Tokens: s.tokens, Width: e.width, Vocabulary: e.vocabulary,
		}))
	}
	c.dropoutInPlace(x, &e.dropout)
	c.hand(&out[0], x)
}

// backward contributes to the gradients in B; in I it only keeps the gradient of the output.
func (e *embedding) backward(c *call, gradOut, _ []kernels.Buffer) {
	if c.split.input {
		c.keep(e.gradHidden, gradOut[0])
	} else {
		e.contribute(c, gradOut[0])
	}
}

func (e *embedding) weights(c *call) {
	if c.split.forWeight.has(e.gradHidden) {
		e.contribute(c, c.mb.Take(e.gradHidden))
	}
}

func (e *embedding) forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots {
	return slots(0).with(trains(mb, e.tableUse, e.positionsUse), e.gradHidden)
}

// contribute adds to the gradients of both tables.
func (e *embedding) contribute(c *call, dy kernels.Buffer) {
	table, addTable := c.grad(e.tableUse)
	positions, addPositions := c.grad(e.positionsUse)
	var none kernels.Buffer
	if table == none && positions == none {
		return
	}
	tokens := c.mb.Part(e.tokens)
	dx := c.dropoutBackward(dy, &e.dropout)
	for _, s := range c.spans(tokens.N) {
		c.mb.Check(e.dev.EmbedBackward(kernels.EmbedBackward{
			IDs: c.rows(tokens, s, 1), DX: c.rows(dx, s, e.width), DTable: table, DPositions: positions,
			Tokens: s.tokens, Width: e.width, Vocabulary: e.vocabulary,
			AccumulateTable: addTable || s.first > 0, AccumulatePositions: addPositions || s.first > 0,
		}))
	}
	c.freeDropped(dx, dy)
}
