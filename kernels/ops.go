package kernels

import "github.com/weir-ml/weir/loss"

// Elementwise provides operations on whole float32 buffers.
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

// MatMul is C = op(A)·op(B), or C += op(A)·op(B) if Accumulate is set. op(A) is M×K, op(B) is
// K×N, C is M×N. If TransA is set, A is stored as K×M; if TransB is set, B is stored as N×K. Each
// element of C is computed as one chain of additions in ascending order of k, starting from 0 or
// from its previous value: it depends only on its row of op(A) and its column of op(B).
//
// Bias, if set, is added to each row of C afterwards, with the same bits as AddRow but without
// another pass over C.
type MatMul struct {
	A, B, C        Buffer
	Bias           Buffer // N elements, or zero
	M, N, K        int
	TransA, TransB bool
	Accumulate     bool
}

// Matrix provides matrix products and the other operations of a linear layer.
type Matrix interface {
	MatMul(op MatMul) error
	// AddRow adds the row b (cols) to each of the rows of x (rows×cols).
	AddRow(x, b Buffer, rows, cols int) error
	// SumRows writes the sum over the rows of x (rows×cols) to dst (cols), or adds it if
	// accumulate is set.
	SumRows(dst, x Buffer, rows, cols int, accumulate bool) error
}

// LayerNorm is y = (x - mean) / sqrt(var + 1e-5) · Gamma + Beta over each row of X (Rows×Cols).
// Mean and RStd = 1/sqrt(var + 1e-5) (Rows elements each) are results for the backward pass.
type LayerNorm struct {
	X, Gamma, Beta Buffer
	Y, Mean, RStd  Buffer
	Rows, Cols     int
}

// LayerNormBackward computes DX (Rows×Cols) from DY, and the gradients of Gamma and Beta. DX is
// overwritten. DGamma and DBeta are overwritten, or added to if AccumulateGamma or AccumulateBeta
// is set. If DX, DGamma or DBeta is the zero Buffer, that gradient is not computed.
type LayerNormBackward struct {
	DY, X, Gamma, Mean, RStd Buffer
	DX, DGamma, DBeta        Buffer
	Rows, Cols               int
	AccumulateGamma          bool
	AccumulateBeta           bool
}

// Norm provides layer normalization.
type Norm interface {
	LayerNorm(op LayerNorm) error
	LayerNormBackward(op LayerNormBackward) error
}

// Activation provides activation functions: the tanh form of GELU, as in GPT-2.
type Activation interface {
	// GELU sets y to gelu(x); y may be x.
	GELU(y, x Buffer) error
	// GELUBackward sets dx to dy · gelu'(x); dx may be dy.
	GELUBackward(dx, dy, x Buffer) error
}

// CausalAttention is softmax(Q·Kᵀ/sqrt(HeadDim))·V, where position i attends to positions 0..i.
// QKV is Tokens×(3·Heads·HeadDim): for each token it holds all of q, then k, then v, each ordered
// by head. Out is Tokens×(Heads·HeadDim). LSE (Heads×Tokens) is the logarithm of each row's sum
// of exponentials, a result for the backward pass. Workspace has at least AttentionWorkspace
// elements: it holds tiles of the Tokens×Tokens matrix, which never exists as a whole.
type CausalAttention struct {
	QKV, Out, LSE, Workspace Buffer
	Tokens, Heads, HeadDim   int
}

// CausalAttentionBackward computes all of DQKV from DOut and the results of the forward pass.
type CausalAttentionBackward struct {
	DOut, QKV, Out, LSE    Buffer
	DQKV, Workspace        Buffer
	Tokens, Heads, HeadDim int
}

// HeadLimit is an optional interface for devices that limit the number of elements per attention
// head. It allows a model with wider heads to be rejected when it is built.
type HeadLimit interface {
	MaxHeadDim() int
}

// Attention provides tiled causal self-attention.
type Attention interface {
	// AttentionWorkspace returns the number of float32 elements that the forward pass needs, and
	// the number that the backward pass needs. Neither is less for more tokens.
	AttentionWorkspace(tokens, heads, headDim int) (forward, backward int)
	CausalAttention(op CausalAttention) error
	CausalAttentionBackward(op CausalAttentionBackward) error
}

// Embed sets row t of X (Tokens×Width) to Table[IDs[t]] + Positions[t]. Table is
// Vocabulary×Width, Positions is at least Tokens×Width, and IDs are int32. An id out of range
// gives ErrShape.
type Embed struct {
	IDs, Table, Positions, X  Buffer
	Tokens, Width, Vocabulary int
}

// EmbedBackward adds row t of DX to DTable[IDs[t]] and to DPositions[t], in ascending order of t.
// A gradient whose Accumulate field is not set is zeroed completely first. If DTable or
// DPositions is the zero Buffer, that gradient is not computed.
type EmbedBackward struct {
	IDs, DX, DTable, DPositions Buffer
	Tokens, Width, Vocabulary   int
	AccumulateTable             bool
	AccumulatePositions         bool
}

// Embedding provides the lookup of rows by token.
type Embedding interface {
	Embed(op Embed) error
	EmbedBackward(op EmbedBackward) error
}

// HeadLoss is softmax cross-entropy fused with the linear head: logits = X·Tableᵀ, computed in
// tiles in Workspace. X is Tokens×Width, Table is Vocabulary×Width, Labels are int32 (a label out
// of range gives ErrShape, whatever its weight), and Weights are float32 (Tokens each). A token
// of weight 0 contributes nothing to the loss or to the gradients. LSE (Tokens) is the logarithm
// of each row's sum of exponentials, a result for the backward pass.
//
// Logits is an optional float32 buffer. If it is set, HeadLoss leaves as many tiles of logits
// there as fit, for the backward pass, in an order that the device chooses. If it has at least
// Tokens×Vocabulary elements, no Workspace is needed. The backward pass recomputes the other
// tiles. The bits of the results do not depend on which tiles are kept.
type HeadLoss struct {
	X, Table, Labels, Weights Buffer
	LSE, Workspace, Logits    Buffer
	Tokens, Width, Vocabulary int
}

// HeadLossBackward computes the gradients DX and DTable of Seed · Σ weight·loss. DX is overwritten;
// DTable is overwritten, or added to if Accumulate is set. If DX or DTable is the zero Buffer, that
// gradient is not computed. Logits is the buffer that was passed to HeadLoss; its tiles are
// overwritten with gradients. If a second call on the same operands computes the gradient that the
// first call omitted, the second call must set Gradients.
type HeadLossBackward struct {
	X, Table, Labels, Weights Buffer
	LSE, Workspace, Logits    Buffer
	DX, DTable                Buffer
	Gradients                 bool // Logits holds the gradients left by an earlier call
	Seed                      float32
	Tokens, Width, Vocabulary int
	Accumulate                bool
}

// CrossEntropy provides the fused head.
type CrossEntropy interface {
	// HeadWorkspace returns the number of float32 elements that the forward pass and the
	// backward pass each need. It is not less for more tokens.
	HeadWorkspace(tokens, width, vocabulary int) int
	// HeadLoss returns Σ weight·(-log p(label)) over the tokens, and Σ weight, both summed
	// in float64 in token order.
	HeadLoss(op HeadLoss) (sum, weight float64, err error)
	HeadLossBackward(op HeadLossBackward) error
}

// LossCells is an optional interface for devices that queue their work: the device sums the
// losses itself, so that no goroutine waits for a loss (L3).
type LossCells interface {
	loss.DeviceCells[Buffer]
	// AddHeadLoss is like HeadLoss, except that, instead of returning a microbatch's two sums, it
	// adds them to a cell exactly, as loss.Ledger.Record does. If cell is the zero Cell, as in a
	// recompute, it discards them.
	AddHeadLoss(op HeadLoss, cell Cell, microbatch int) error
}

// Key identifies a random draw: the same key and element give the same draw on every device,
// regardless of earlier operations (L9).
type Key struct {
	Seed       uint64
	Step       int64
	Microbatch int64  // global number of the microbatch, or of a sequence that is packed into one
	Op         uint64 // OpKey of the operation's name
}

// OpKey returns the key for an operation's name: the FNV-1a hash of its bytes.
func OpKey(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// Random provides operations that fill and mask buffers by keyed draws.
type Random interface {
	// Dropout sets element i of y to 0 if its draw (Key.Draw) is below p·2^32, truncated to an
	// integer, and to x[i]/(1-p) otherwise. The backward pass is the same call on the
	// gradient. y may be x. It returns ErrValue unless 0 <= p < 1.
	Dropout(y, x Buffer, p float32, key Key) error
	// Normal fills x with draws of mean 0 and the given standard deviation. It returns ErrValue
	// unless the deviation is finite and not negative. Elements 2i and 2i+1 are the cosine and
	// sine results of the Box–Muller method, applied to their two draws as the uniform numbers
	// (draw + 1/2) / 2^32.
	Normal(x Buffer, std float32, key Key) error
}

// AdamW is one decoupled-weight-decay Adam update (Loshchilov and Hutter 2019) of Weight, with
// the gradient first multiplied by Factor. M and V are its moments. Step counts from 1, and both
// Betas are at least 0 and below 1; other values give ErrValue.
type AdamW struct {
	Weight, Grad, M, V          Buffer
	Factor                      float32
	LearningRate, Beta1         float32
	Beta2, Epsilon, WeightDecay float32
	Step                        int64
}

// Optimizer provides the operations at the end of a step.
type Optimizer interface {
	// SumSquares returns Σ x² in float64, in an order that depends only on the number of
	// elements. The sum is NaN or infinite if any element is.
	SumSquares(x Buffer) (float64, error)
	AdamW(op AdamW) error
}
