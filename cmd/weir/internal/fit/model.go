package fit

import (
	"errors"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ErrModel is wrapped by errors about a description of a model.
var ErrModel = errors.New("fit: invalid model")

// Model is a decoder-only transformer.
type Model struct {
	Family     string // such as "llama", or "megatron"
	Layers     int
	Hidden     int
	Heads      int
	KVHeads    int // heads of keys and values
	HeadDim    int // width of a query, a key and a value
	FFN        int // inner width of a dense layer; 0 if all layers have experts
	Vocabulary int
	Padding    int // the vocabulary is padded to a multiple of this number times the tensor parallel size; 0 means 1

	Gated     bool // the MLP has two input matrices, as in SwiGLU
	Tied      bool // the head shares the table of the embedding
	QKVBias   bool
	OutBias   bool // attention's output has a bias
	MLPBias   bool
	QKNorm    bool // queries and keys are normalized: per head, or in compressed form with latent attention
	Sinks     bool // the softmax has a learned offset for each head
	LayerNorm bool // norms have a bias and a mean
	Positions int  // rows of a learned table of positions
	Dropout   bool // hidden states have dropout

	AttentionDropout bool // scores of attention have dropout

	// Experts of the layers that Sparse marks.
	Experts      int
	TopK         int
	ExpertFFN    int
	ExpertBias   bool   // the experts other than the shared one have biases
	SharedFFN    int    // inner width of the shared experts, which process every token; 0 means none
	SharedGate   bool   // a gate weighs the shared expert
	RouterBias   bool   // the router has a bias for each expert
	RouterBuffer bool   // the router has a correction for each expert, which is not trained but counted
	Sparse       []bool // by layer; nil is none

	Latent *Latent // attention with compressed queries, keys and values; nil if the model has none
	MTP    int     // layers that predict further tokens, after the last one
}

// Latent has the widths of multi-head latent attention.
type Latent struct {
	Query int // compressed queries; 0 if queries are not compressed
	KV    int // compressed keys and values
	Nope  int // width of the part of a head's query and key without position
	Rope  int // width of the part of a head's query, and of the key that all heads share, with position
	Value int // a head's value
}

const (
	maxWidth      = 1 << 24
	maxLayers     = 1 << 12
	maxExperts    = 1 << 14
	maxParameters = 1 << 50
)

// Validate reports all faults of the model. Each of the joined errors wraps ErrModel.
func (m *Model) Validate() error {
	f := faults{kind: ErrModel}
	f.size("the number of layers", m.Layers, 1, maxLayers)
	f.size("the hidden size", m.Hidden, 1, maxWidth)
	f.size("the number of attention heads", m.Heads, 1, maxWidth)
	if m.Latent == nil {
		f.size("the number of key and value heads", m.KVHeads, 1, maxWidth)
		f.size("the size of a head", m.HeadDim, 1, maxWidth)
	}
	f.size("the inner size of the MLP", m.FFN, 0, maxWidth)
	f.size("the vocabulary", m.Vocabulary, 1, maxWidth)
	f.size("the table of positions", m.Positions, 0, maxWidth)
	f.size("the number of layers that predict further tokens", m.MTP, 0, 16)
	sparse := 0
	for _, is := range m.Sparse {
		if is {
			sparse++
		}
	}
	if sparse > 0 {
		f.size("the number of experts", m.Experts, 1, maxExperts)
		f.size("the number of experts of a token", m.TopK, 1, max(m.Experts, 1))
		f.size("the inner size of an expert", m.ExpertFFN, 1, maxWidth)
		f.size("the inner size of the shared experts", m.SharedFFN, 0, maxWidth)
	}
	f.refuse(sparse < m.Layers && m.FFN == 0, "there are dense layers, but the inner size of the MLP is 0")
	f.refuse(m.KVHeads > 0 && m.Heads%m.KVHeads != 0 && m.Latent == nil, "%d attention heads do not divide over %d heads of keys and values", m.Heads, m.KVHeads)
	if l := m.Latent; l != nil {
		f.size("the rank of queries", l.Query, 0, maxWidth)
		f.size("the rank of keys and values", l.KV, 1, maxWidth)
		f.size("the part of a head without position", l.Nope, 1, maxWidth)
		f.size("the part of a head with position", l.Rope, 1, maxWidth)
		f.size("the size of a value", l.Value, 1, maxWidth)
	}
	f.refuse(len(f.list) == 0 && m.Parameters(1, true) > maxParameters, "it has more than 2^50 parameters")
	return errors.Join(f.list...)
}

// faults collects errors that wrap one kind.
type faults struct {
	kind   error
	remedy string // the end of each text
	list   []error
}

func (f *faults) add(format string, args ...any) {
	f.list = append(f.list, diagnostic.Errorf(f.kind, format+f.remedy, args...))
}

// refuse adds a fault if wrong is set.
func (f *faults) refuse(wrong bool, format string, args ...any) {
	if wrong {
		f.add(format, args...)
	}
}

// size adds a fault if a number is out of bounds. It reports whether the number is valid.
func (f *faults) size(name string, n, low, high int) bool {
	f.refuse(n < low || n > high, "%s is %d: give %d to %d", name, n, low, high)
	return n >= low && n <= high
}

// sparse reports whether a layer has experts. Layers after the last are like the last.
func (m *Model) sparse(layer int) bool {
	return len(m.Sparse) > 0 && m.Sparse[min(layer, len(m.Sparse)-1)]
}

// queryWidth returns the width of all queries.
func (m *Model) queryWidth() int {
	if m.Latent != nil {
		return m.Heads * (m.Latent.Nope + m.Latent.Rope)
	}
	return m.Heads * m.HeadDim
}

// valueWidth returns the width of attention's output.
func (m *Model) valueWidth() int {
	if m.Latent != nil {
		return m.Heads * m.Latent.Value
	}
	return m.Heads * m.HeadDim
}

// padded returns the rows of the vocabulary's tables, padded for tensor parallelism.
func (m *Model) padded(tensor int) int {
	unit := max(m.Padding, 1) * tensor
	return (m.Vocabulary + unit - 1) / unit * unit
}
