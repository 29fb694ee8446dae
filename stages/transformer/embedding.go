package transformer

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// ErrTooLong is returned for a sequence longer than Config.Context.
var ErrTooLong = errors.New("transformer: the sequence is longer than the context")

// embedding turns tokens into hidden states. It saves nothing.
type embedding struct {
	stage
	vocabulary, context int
	table, positions    kernels.Buffer
	tableUse            int
	positionsUse        int
	dropout             dropout
}

func (b *builder) embedding() (*embedding, *Parameter) {
	e := &embedding{vocabulary: b.cfg.Vocabulary, context: b.cfg.Context, dropout: b.cfg.dropout("embedding.dropout")}
	table := b.matrix("embedding.weight", standardDeviation, b.cfg.Vocabulary, b.cfg.Width)
	positions := b.matrix("positions.weight", standardDeviation, b.cfg.Context, b.cfg.Width)
	e.table, e.positions = table.Weight, positions.Weight
	e.tableUse, e.positionsUse = e.use(table, table.Grad), e.use(positions, positions.Grad)
	e.dev, e.width = b.dev, b.cfg.Width
	e.spec = stages.Spec{
		Name: "embedding", Outputs: hidden,
		Reads: []stages.Read{{Part: Parts[0], At: batchctx.AtForward | batchctx.AtWeight}},
	}
	return e, table
}

// Forward returns the hidden states of the tokens.
func (e *embedding) Forward(_ context.Context, mb *batchctx.Microbatch[kernels.Buffer], _, out []kernels.Buffer) error {
	c := call{dev: e.dev, mb: mb}
	e.forward(&c, out)
	return c.done()
}

func (e *embedding) forward(c *call, out []kernels.Buffer) {
	tokens := c.part(0)
	if c.err == nil && tokens.N > e.context {
		c.err = fmt.Errorf("%w: %d tokens, Config.Context is %d", ErrTooLong, tokens.N, e.context)
	}
	x := c.alloc(memory.Activation, tokens.N*e.width)
	if c.err == nil {
		c.err = e.dev.Embed(kernels.Embed{
			IDs: tokens, Table: e.table, Positions: e.positions, X: x,
			Tokens: tokens.N, Width: e.width, Vocabulary: e.vocabulary,
		})
	}
	c.dropoutInPlace(x, &e.dropout)
	c.hand(&out[0], x)
}

// Backward contributes to the gradients of both tables.
func (e *embedding) Backward(_ context.Context, mb *batchctx.Microbatch[kernels.Buffer], gradOut, _ []kernels.Buffer) error {
	c := call{dev: e.dev, mb: mb}
	e.backward(&c, gradOut[0])
	return c.done()
}

func (e *embedding) backward(c *call, dy kernels.Buffer) {
	table, addTable := c.grad(e.tableUse)
	positions, addPositions := c.grad(e.positionsUse)
	var none kernels.Buffer
	if table == none && positions == none {
		return
	}
	tokens := c.part(0)
	dx := c.dropoutBackward(dy, &e.dropout)
	if c.err == nil {
		c.err = e.dev.EmbedBackward(kernels.EmbedBackward{
			IDs: tokens, DX: dx, DTable: table, DPositions: positions,
			Tokens: tokens.N, Width: e.width, Vocabulary: e.vocabulary,
			AccumulateTable: addTable, AccumulatePositions: addPositions,
		})
	}
	c.freeDropped(dx, dy)
}
