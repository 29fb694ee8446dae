package transformer

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
)

// stage is a stage of the model. It does what embedding, block and head have in common.
type stage struct {
	stages.Decl[kernels.Buffer]
	layers layers // the embedding, block or head itself
	dev    kernels.Compute
	width  int
	packed *func(microbatch int) []Sequence // Model.Sequences
	c      call                             // the current call
}

// layers implements the computations of a stage.
type layers interface {
	common() *stage
	forward(c *call, in, out []kernels.Buffer)
	// backward computes B and I.
	backward(c *call, gradOut, gradIn []kernels.Buffer)
	// weights computes W.
	weights(c *call)
	// forWeight returns the slots that I leaves for W: slots of gradients and slots of tensors from
	// the forward.
	forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots
}

func (s *stage) common() *stage { return s }

// asStage returns the stage that l embeds, after setting the layers that it calls to l.
func asStage(l layers) *stage {
	s := l.common()
	s.layers = l
	return s
}

// begin begins a call. Its caller defers end, which ends it.
func (s *stage) begin(mb batchctx.Microbatch[kernels.Buffer], split split) *call {
	s.c = call{dev: s.dev, mb: mb, split: split, sequences: *s.packed, places: s.c.places}
	return &s.c
}

// end releases the call's buffers that are left after a failure.
func (s *stage) end() {
	s.c.abandon()
	s.c = call{places: s.c.places}
}

// Forward returns the outputs, or records the loss.
func (s *stage) Forward(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], in, out []kernels.Buffer) error {
	c := s.begin(mb, split{})
	defer s.end()
	s.layers.forward(c, in, out)
	return c.done()
}

// Backward returns the gradient of the input, if it is needed, and contributes to the gradients
// of the parameters.
func (s *stage) Backward(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], gradOut, gradIn []kernels.Buffer) error {
	c := s.begin(mb, split{})
	defer s.end()
	s.layers.backward(c, gradOut, gradIn)
	return c.done()
}

// BackwardInput returns the gradient of the input, if it is needed.
func (s *stage) BackwardInput(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], gradOut, gradIn []kernels.Buffer) error {
	c := s.begin(mb, split{input: true, forWeight: s.layers.forWeight(mb)})
	defer s.end()
	s.layers.backward(c, gradOut, gradIn)
	return c.done()
}

// BackwardWeight contributes to the gradients of the parameters.
func (s *stage) BackwardWeight(_ context.Context, mb batchctx.Microbatch[kernels.Buffer]) error {
	c := s.begin(mb, split{forWeight: s.layers.forWeight(mb)})
	defer s.end()
	s.layers.weights(c)
	return c.done()
}

// hidden is the tensor between two stages: the hidden states, tokens×Width.
const hidden = "hidden"
