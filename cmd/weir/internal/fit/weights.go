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

// Module is a unit of a model that stages do not divide: the embedding, a layer, a layer that
// predicts further tokens, or the head.
type Module struct {
	Kind  ModuleKind
	Layer int // number of the layer, for the kinds of layers
}

// ModuleKind is the kind of a module.
type ModuleKind uint8

// The kinds of modules.
const (
	Embedding ModuleKind = iota
	Block
	Further // a block that predicts further tokens
	Head
)

// Modules returns the modules of the model in order. further includes the layers that predict further
// tokens.
func (m *Model) Modules(further bool) []Module {
	parts := []Module{{Kind: Embedding}}
	for layer := range m.Layers {
		parts = append(parts, Module{Block, layer})
	}
	for i := range m.MTP {
		if further {
			parts = append(parts, Module{Further, m.Layers + i})
		}
	}
	return append(parts, Module{Kind: Head})
}

// Weights returns the parameters of a module. vocabulary is the number of rows of the vocabulary's
// tables.
func (m *Model) Weights(p Module, vocabulary int) (list []Weight) {
	matrix := func(name string, in, out int, split Split) {
		if n := product(int64(in), int64(out)); n > 0 {
			list = append(list, Weight{name, n, split, out > 1 && name != "router"})
		}
	}
	vector := func(name string, width int, there bool, split Split) {
		if there {
			matrix(name, width, 1, split)
		}
	}
	linear := func(name string, in, out int, bias bool, split Split) {
		matrix(name, in, out, split)
		vector("bias of "+name, out, bias, split)
	}
	norm := func(name string, width int) {
		matrix(name, width, 1, Whole)
		vector("bias of "+name, width, m.LayerNorm, Whole)
	}
	mlp := func(name string, inner int, bias bool) {
		into := inner
		if m.Gated {
			into *= 2
		}
		linear(name+" in", m.Hidden, into, bias, ByTensor)
		matrix(name+" out", inner, m.Hidden, ByTensor)
		vector("bias of "+name+" out", m.Hidden, bias, Whole)
	}

	switch p.Kind {
	case Embedding:
		matrix("embedding", vocabulary, m.Hidden, ByTensor)
		matrix("positions", m.Positions, m.Hidden, Whole)
		return list
	case Head:
		norm("final norm", m.Hidden)
		if !m.Tied {
			matrix("head", vocabulary, m.Hidden, ByTensor)
		}
		return list
	case Further:
		norm("norm of the embedding", m.Hidden)
		norm("norm of the hidden state", m.Hidden)
		matrix("projection", 2*m.Hidden, m.Hidden, ByTensor)
		norm("norm before the head", m.Hidden)
	}

	norm("norm before attention", m.Hidden)
	query, kv := m.queryWidth(), m.KVHeads*m.HeadDim
	switch l := m.Latent; {
	case l == nil:
		linear("query", m.Hidden, query, m.QKVBias, ByTensor)
		linear("key", m.Hidden, kv, m.QKVBias, ByTensor)
		linear("value", m.Hidden, kv, m.QKVBias, ByTensor)
		if m.QKNorm {
			norm("norm of queries", m.HeadDim)
			norm("norm of keys", m.HeadDim)
		}
	case l.Query > 0:
		linear("query down", m.Hidden, l.Query, m.QKVBias, Whole)
		if m.QKNorm {
			norm("norm of queries", l.Query)
		}
		matrix("query up", l.Query, query, ByTensor)
	default:
		matrix("query", m.Hidden, query, ByTensor)
	}
	if l := m.Latent; l != nil {
		linear("key and value down", m.Hidden, l.KV+l.Rope, m.QKVBias, Whole)
		if m.QKNorm {
			norm("norm of keys and values", l.KV)
		}
		matrix("key and value up", l.KV, m.Heads*(l.Nope+l.Value), ByTensor)
	}
	vector("sinks", m.Heads, m.Sinks, ByTensor)
	matrix("attention output", m.valueWidth(), m.Hidden, ByTensor)
	vector("bias of attention output", m.Hidden, m.OutBias, Whole)

	norm("norm before the MLP", m.Hidden)
	if !m.sparse(p.Layer) {
		mlp("mlp", m.FFN, m.MLPBias)
		return list
	}
	matrix("router", m.Experts, m.Hidden, Whole)
	vector("bias of the router", m.Experts, m.RouterBias, Whole)
	vector("correction of the router", m.Experts, m.RouterBuffer, Whole)
	begin := len(list)
	mlp("expert", m.ExpertFFN, m.ExpertBias)
	for i := range list[begin:] {
		one := &list[begin+i]
		one.Elements, one.Split = product(int64(m.Experts), one.Elements), ByExpert
	}
	if m.SharedFFN > 0 {
		mlp("shared expert", m.SharedFFN, m.MLPBias)
		vector("gate of the shared expert", m.Hidden, m.SharedGate, Whole)
	}
	return list
}

// Parameters returns the number of the model's parameters. If Padding is set, it includes the padding
// of the vocabulary for tensor ranks that share a layer. further includes the layers that predict
// further tokens.
func (m *Model) Parameters(tensor int, further bool) (n int64) {
	vocabulary := m.Vocabulary
	if m.Padding > 0 {
		vocabulary = m.padded(tensor)
	}
	for _, p := range m.Modules(further) {
		for _, w := range m.Weights(p, vocabulary) {
			n = min(n, math.MaxInt64/2) + min(w.Elements, math.MaxInt64/2) // Validate rejects such numbers
		}
	}
	return n
}

// product returns a*b, or MaxInt64/2 if that is less.
func product(a, b int64) int64 {
	if a != 0 && float64(a)*float64(b) > math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return a * b
}
