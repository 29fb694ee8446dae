package kernels

import "github.com/weir-ml/weir/loss"

// Elementwise operations on whole buffers of float32.
type Elementwise interface {
	// Zero sets every element of x to 0.
	Zero(x Buffer) error
	// Copy sets dst to src; both have the same number of elements.
	Copy(dst, src Buffer) error
	// Add adds src to dst element by element.
	Add(dst, src Buffer) error
	// Sum sets dst to a + b element by element; dst may be a or b.
	Sum(dst, a, b Buffer) error
}

// MatMul is C = op(A)·op(B), or C += op(A)·op(B) where Accumulate is set. op(A)
// is M×K, op(B) is K×N, C is M×N. Where TransA is set A is stored K×M, where
// TransB is set B is stored N×K. Each element of C is one chain of additions in
// ascending order of k, from 0 or from what C has: it depends on its row of op(A)
// and its column of op(B) alone.
//
// Bias, where there is one, is added to each row of C afterwards, with the bits of
// AddRow: it saves a pass over C.
type MatMul struct {
	A, B, C        Buffer
	Bias           Buffer // N elements, or none
	M, N, K        int
	TransA, TransB bool
	Accumulate     bool
}

// Matrix products and what belongs to a linear layer.
type Matrix interface {
	MatMul(op MatMul) error
	// AddRow adds the row b (cols) to each of the rows of x (rows×cols).
	AddRow(x, b Buffer, rows, cols int) error
	// SumRows writes the sum over rows of x (rows×cols) to dst (cols), or adds it.
	SumRows(dst, x Buffer, rows, cols int, accumulate bool) error
}

// LayerNorm is y = (x - mean) / sqrt(var + 1e-5) · Gamma + Beta over each row of
// X (Rows×Cols). Mean and RStd (Rows each) are kept for the backward.
type LayerNorm struct {
	X, Gamma, Beta Buffer
	Y, Mean, RStd  Buffer
	Rows, Cols     int
}

// LayerNormBackward computes DX (Rows×Cols) from DY, and the gradients of Gamma
// and Beta, each written, or added to where its Accumulate is set. A zero
// DGamma or DBeta is not computed; a zero DX is not computed.
type LayerNormBackward struct {
	DY, X, Gamma, Mean, RStd Buffer
	DX, DGamma, DBeta        Buffer
	Rows, Cols               int
	AccumulateGamma          bool
	AccumulateBeta           bool
}

// Norm is layer normalisation.
type Norm interface {
	LayerNorm(op LayerNorm) error
	LayerNormBackward(op LayerNormBackward) error
}

// Activation functions, the tanh form of GELU as in GPT-2.
type Activation interface {
	// GELU sets y to gelu(x); y may be x.
	GELU(y, x Buffer) error
	// GELUBackward sets dx to dy · gelu'(x); dx may be dy.
	GELUBackward(dx, dy, x Buffer) error
}

// CausalAttention is softmax(Q·Kᵀ/sqrt(HeadDim))·V with position i seeing
// positions 0..i. QKV is Tokens×(3·Heads·HeadDim): per token all of q, then k,
// then v, each by head. Out is Tokens×(Heads·HeadDim). LSE (Heads×Tokens) is the
// logarithm of each row's sum of exponentials, kept for the backward. Workspace
// has AttentionWorkspace elements: no Tokens×Tokens matrix exists beyond a tile.
type CausalAttention struct {
	QKV, Out, LSE, Workspace Buffer
	Tokens, Heads, HeadDim   int
}

// CausalAttentionBackward computes DQKV, which is written whole, from DOut and
// what the forward kept.
type CausalAttentionBackward struct {
	DOut, QKV, Out, LSE    Buffer
	DQKV, Workspace        Buffer
	Tokens, Heads, HeadDim int
}

// HeadLimit is an optional ability of a device: to say how many elements its heads of attention
// have at most, so that a model with wider ones is refused when it is built.
type HeadLimit interface {
	MostHeadDim() int
}

// Attention is causal self-attention by tiles.
type Attention interface {
	// AttentionWorkspace returns the elements of float32 that the forward and the
	// backward need each.
	AttentionWorkspace(tokens, heads, headDim int) (forward, backward int)
	CausalAttention(op CausalAttention) error
	CausalAttentionBackward(op CausalAttentionBackward) error
}

// Embed sets row t of X (Tokens×Width) to Table[IDs[t]] + Positions[t]. Table is
// Vocabulary×Width, Positions at least Tokens×Width, IDs are int32 in range; one
// out of range is ErrShape.
type Embed struct {
	IDs, Table, Positions, X  Buffer
	Tokens, Width, Vocabulary int
}

// EmbedBackward adds row t of DX to DTable[IDs[t]] and to DPositions[t], in
// ascending order of t. Where an Accumulate is not set the whole gradient is
// zeroed first. A zero gradient is not computed.
type EmbedBackward struct {
	IDs, DX, DTable, DPositions Buffer
	Tokens, Width, Vocabulary   int
	AccumulateTable             bool
	AccumulatePositions         bool
}

// Embedding looks rows up by token.
type Embedding interface {
	Embed(op Embed) error
	EmbedBackward(op EmbedBackward) error
}

// Softmax cross-entropy fused with the linear head: logits = X·Tableᵀ, computed
// in tiles into Workspace. X is Tokens×Width, Table Vocabulary×Width, Labels int32 in
// range (one out of range is ErrShape, whatever its weight), Weights float32 (Tokens
// each). A token of weight 0 has no part in loss and gradients. LSE (Tokens) is kept for the backward.
//
// Logits may be none. Else it is float32, and as many tiles of logits as it has room for
// are left there for the backward, in the device's own order. It needs no Workspace where
// it has Tokens×Vocabulary elements. The backward computes the others again. The bits are
// the same whatever is kept.
type HeadLoss struct {
	X, Table, Labels, Weights Buffer
	LSE, Workspace, Logits    Buffer
	Tokens, Width, Vocabulary int
}

// HeadLossBackward computes DX and DTable of Seed · Σ weight·loss. DX is written,
// DTable written or added to. A zero DX or DTable is not computed. Logits is that of
// HeadLoss, and is overwritten with gradients. A second call over the same operands, for
// what the first did not compute, says so by Gradients.
type HeadLossBackward struct {
	X, Table, Labels, Weights Buffer
	LSE, Workspace, Logits    Buffer
	DX, DTable                Buffer
	Gradients                 bool // Logits holds what an earlier call has left
	Seed                      float32
	Tokens, Width, Vocabulary int
	Accumulate                bool
}

// CrossEntropy is the fused head.
type CrossEntropy interface {
	// HeadWorkspace returns the elements of float32 that the forward and the
	// backward need each.
	HeadWorkspace(tokens, width, vocabulary int) int
	// HeadLoss returns Σ weight·(-log p(label)) over the tokens, and Σ weight,
	// both added up in float64 in token order.
	HeadLoss(op HeadLoss) (sum, weight float64, err error)
	HeadLossBackward(op HeadLossBackward) error
}

// LossCells is an optional ability of a device whose work is queued: to add losses up itself,
// so that nobody waits for one (L3).
type LossCells interface {
	loss.Cells[Buffer]
	// AddHeadLoss is HeadLoss whose two numbers are added exactly to a cell as those of a
	// microbatch, in place of being returned: as loss.Ledger.Record does. With the zero Cell, as
	// in a recompute, they are added to none.
	AddHeadLoss(op HeadLoss, cell Cell, microbatch int) error
}

// Key names a random draw: the same key and element give the same draw on every
// device, whatever ran before (L9).
type Key struct {
	Seed       uint64
	Step       int64
	Microbatch int64  // global number of the microbatch
	Op         uint64 // OpKey of the operation's name
}

// OpKey returns the key of an operation's name: FNV-1a over its bytes.
func OpKey(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// Random fills and masks by keyed draws.
type Random interface {
	// Dropout sets element i of y to x[i]/(1-p), or to 0 with probability p: where
	// its draw (Key.Draw) is below p·2^32. The backward is the same call on the gradient. y may be x.
	// 0 <= p < 1, else ErrValue.
	Dropout(y, x Buffer, p float32, key Key) error
	// Normal fills x with draws of mean 0 and the given standard deviation, finite
	// and not negative, else ErrValue. Elements 2i and 2i+1 are the cosine and the
	// sine of Box and Muller's method on their two draws, each plus one half over 2^32.
	Normal(x Buffer, std float32, key Key) error
}

// AdamW is one decoupled-weight-decay Adam update (Loshchilov and Hutter 2019)
// of Weight, with the gradient multiplied by Factor first. M and V are its
// moments. Step counts from 1, and both Betas are at least 0 and below 1, else
// ErrValue.
type AdamW struct {
	Weight, Grad, M, V          Buffer
	Factor                      float32
	LearningRate, Beta1         float32
	Beta2, Epsilon, WeightDecay float32
	Step                        int64
}

// Optimizer is what happens to gradients at step end.
type Optimizer interface {
	// SumSquares returns Σ x² in float64, in an order that depends on the number of
	// elements alone. It is NaN or infinite where an element is.
	SumSquares(x Buffer) (float64, error)
	AdamW(op AdamW) error
}
