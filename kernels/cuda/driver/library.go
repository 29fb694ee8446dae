package driver

// Multiply is C = op(A)·op(B), or C += op(A)·op(B) if Accumulate is set, of row-major float32
// matrices: op(A) is M×K, op(B) is K×N. If TransA is set, A is stored as K×M; if TransB is
// set, B is stored as N×K. If BFloat16 is set, both operands are rounded to bfloat16 first,
// and sums stay in float32.
type Multiply struct {
	A, B, C        Addr
	M, N, K        int // at most 2^31-1
	TransA, TransB bool
	Accumulate     bool
	BFloat16       bool
}

// Library multiplies matrices instead of kernels. It belongs to one device. Its errors are of
// type [*Error].
type Library interface {
	// Bind makes subsequent products run on a stream, and gives them device memory as a
	// workspace. It is called once, before the first product.
	Bind(s Stream, workspace Addr, bytes int64) error
	// Multiply queues a product. It allocates no device memory.
	Multiply(op Multiply) error
	// Close closes the library. The caller first waits for queued work.
	Close() error
}
