package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
)

// stage is what embedding, block and head have in common. It never changes once
// it is built.
type stage struct {
	dev    kernels.Compute
	spec   stages.Spec
	params []batchctx.Use[kernels.Buffer]
	width  int
}

// Spec returns what the stage declares.
func (s *stage) Spec() stages.Spec { return s.spec }

// Params returns the stage's uses of parameters.
func (s *stage) Params() []batchctx.Use[kernels.Buffer] { return s.params }

// hidden is what passes between two stages: the hidden states, tokens×Width.
var hidden = []stages.Port{{Name: "hidden"}}
