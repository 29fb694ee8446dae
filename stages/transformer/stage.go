package transformer

import (
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
)

// stage is what embedding, block and head have in common. It never changes once
// it is built.
type stage struct {
	stages.Decl[kernels.Buffer]
	dev   kernels.Compute
	width int
}

// hidden is what passes between two stages: the hidden states, tokens×Width.
const hidden = "hidden"
