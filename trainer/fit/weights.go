package fit

import "math"

// Weight is a tensor of parameters.
type Weight struct {
	Name     string
	Elements int64
	Split    Split
	Product  bool // a matrix that tokens are multiplied with, or a table; not a router, which is float32
}

// Split is the kind of parallelism that divides a weight.
type Split uint8

// The kinds of splits.
const (
	Whole    Split = iota // each rank of tensor parallelism has the whole weight
	ByTensor              // divided by tensor parallelism
	ByExpert              // divided by expert parallelism, and each expert by expert tensor parallelism
)

// Part is a unit of a model that stages do not divide: the embedding, a layer, a layer that
// predicts further tokens, or the head.
type Part struct {
	Kind  PartKind
	Layer int // number of the layer, for the kinds of layers
}

// PartKind is the kind of a part.
type PartKind uint8

// The kinds of parts.
const (
	Embedding PartKind = iota
	Block
	Further // a block that predicts further tokens
	Head
)

// Parts returns the parts of the model in order. further includes the layers that predict further
// tokens.
func (m *Model) Parts(further bool) []Part {
	parts := []Part{{Kind: Embedding}}
	for layer := range m.Layers {
		parts = append(parts, Part{Block, layer})
	}
	for i := range m.MTP {
		if further {
			parts = append(parts, Part{Further, m.Layers + i})
		}
	}
	return append(parts, Part{Kind: Head})
}

// Weights returns the parameters of a part. vocabulary is the number of rows of the vocabulary's
// tables.
func (m *Model) Weights(p Part, vocabulary int) []Weight {
	w := &weighing{layerNorm: m.LayerNorm}
	switch p.Kind {
	case Embedding:
		w.matrix("embedding", vocabulary, m.Hidden, ByTensor)
		w.matrix("positions", m.Positions, m.Hidden, Whole)
	case Head:
		w.norm("final norm", m.Hidden)
		if !m.Tied {
			w.matrix("head", vocabulary, m.Hidden, ByTensor)
		}
	default:
		if p.Kind == Further {
			w.norm("norm of the embedding", m.Hidden)
			w.norm("norm of the hidden state", m.Hidden)
			w.matrix("projection", 2*m.Hidden, m.Hidden, ByTensor)
			w.norm("norm before the head", m.Hidden)
		}
		w.norm("norm before attention", m.Hidden)
		m.attention(w)
		w.norm("norm before the MLP", m.Hidden)
		if m.sparse(p.Layer) {
			m.experts(w)
		} else {
			m.mlp(w, "mlp", m.FFN)
		}
	}
	return w.list
}

// attention adds the parameters of attention.
func (m *Model) attention(w *weighing) {
	if m.Latent != nil {
		m.latent(w)
		return
	}
	query, kv := m.queryWidth(), m.KVHeads*m.HeadDim
	w.linear("query", m.Hidden, query, m.QKVBias, ByTensor)
	w.linear("key", m.Hidden, kv, m.QKVBias, ByTensor)
	w.linear("value", m.Hidden, kv, m.QKVBias, ByTensor)
	if m.QKNorm {
		w.norm("norm of queries", m.HeadDim)
		w.norm("norm of keys", m.HeadDim)
	}
	w.linear("attention output", query, m.Hidden, false, ByTensor)
	w.vector("bias of attention output", m.Hidden, m.OutBias, Whole)
}

// latent adds the parameters of multi-head latent attention.
func (m *Model) latent(w *weighing) {
	l, query := m.Latent, m.queryWidth()
	if l.Query > 0 {
		w.linear("query down", m.Hidden, l.Query, m.QKVBias, Whole)
		w.norm("norm of queries", l.Query)
		w.matrix("query up", l.Query, query, ByTensor)
	} else {
		w.matrix("query", m.Hidden, query, ByTensor)
	}
	w.linear("key and value down", m.Hidden, l.KV+l.Rope, m.QKVBias, Whole)
	w.norm("norm of keys and values", l.KV)
	w.matrix("key and value up", l.KV, m.Heads*(l.Nope+l.Value), ByTensor)
	w.matrix("attention output", m.valueWidth(), m.Hidden, ByTensor)
	w.vector("bias of attention output", m.Hidden, m.OutBias, Whole)
}

// mlp adds the parameters of an MLP.
func (m *Model) mlp(w *weighing, name string, inner int) {
	into := inner
	if m.Gated {
		into *= 2
	}
	w.linear(name+" in", m.Hidden, into, m.MLPBias, ByTensor)
	w.matrix(name+" out", inner, m.Hidden, ByTensor)
	w.vector("bias of "+name+" out", m.Hidden, m.MLPBias, Whole)
}

// experts adds the parameters of a router and its experts.
func (m *Model) experts(w *weighing) {
	w.matrix("router", m.Experts, m.Hidden, Whole)
	w.vector("bias of the router", m.Experts, m.RouterBias, Whole)
	shared := len(w.list)
	m.mlp(w, "expert", m.ExpertFFN)
	for i := range w.list[shared:] {
		one := &w.list[shared+i]
		one.Elements, one.Split = product(int64(m.Experts), one.Elements), ByExpert
	}
	if m.SharedFFN > 0 {
		m.mlp(w, "shared expert", m.SharedFFN)
		w.vector("gate of the shared expert", m.Hidden, m.SharedGate, Whole)
	}
}

// Parameters returns the number of the model's parameters, without padding of the vocabulary.
// further includes the layers that predict further tokens.
func (m *Model) Parameters(further bool) (n int64) {
	for _, p := range m.Parts(further) {
		for _, w := range m.Weights(p, m.Vocabulary) {
			n = min(n, math.MaxInt64/2) + min(w.Elements, math.MaxInt64/2) // Validate rejects such numbers
		}
	}
	return n
}

// weighing collects weights.
type weighing struct {
	layerNorm bool
	list      []Weight
}

func (w *weighing) matrix(name string, in, out int, split Split) {
	if n := product(int64(in), int64(out)); n > 0 {
		w.list = append(w.list, Weight{name, n, split, out > 1 && name != "router"})
	}
}

func (w *weighing) vector(name string, width int, there bool, split Split) {
	if there {
		w.matrix(name, width, 1, split)
	}
}

func (w *weighing) linear(name string, in, out int, bias bool, split Split) {
	w.matrix(name, in, out, split)
	w.vector("bias of "+name, out, bias, split)
}

func (w *weighing) norm(name string, width int) {
	w.matrix(name, width, 1, Whole)
	w.vector("bias of "+name, width, w.layerNorm, Whole)
}

// product returns a*b, or MaxInt64/2 if that is less.
func product(a, b int64) int64 {
	if a != 0 && float64(a)*float64(b) > math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return a * b
}
