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
	e.dev, e.width = b.dev, b.cfg.Width
	e.Name = "embedding"
	e.Outputs(hidden)
	e.tokens = e.Part(Parts[0], batchctx.AtForward, batchctx.AtWeight)
	e.gradHidden = e.Slot("gradient of hidden")
	return e
}

func (e *embedding) forward(c *call, _, out []kernels.Buffer) {
	tokens := c.mb.Part(e.tokens)
	if tokens.N > e.context {
		c.mb.Check(fmt.Errorf("%w: %d tokens, Config.Context is %d", ErrTooLong, tokens.N, e.context))
	}
	x := c.alloc(memory.Activation, tokens.N*e.width)
	c.mb.Check(e.dev.Embed(kernels.Embed{
		IDs: tokens, Table: c.mb.Weight(e.tableUse), Positions: c.mb.Weight(e.positionsUse), X: x,
		Tokens: tokens.N, Width: e.width, Vocabulary: e.vocabulary,
	}))
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
	c.mb.Check(e.dev.EmbedBackward(kernels.EmbedBackward{
		IDs: tokens, DX: dx, DTable: table, DPositions: positions,
		Tokens: tokens.N, Width: e.width, Vocabulary: e.vocabulary,
		AccumulateTable: addTable, AccumulatePositions: addPositions,
	}))
	c.freeDropped(dx, dy)
}
