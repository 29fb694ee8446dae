package driver

// Multiply is C = op(A)·op(B), or C += op(A)·op(B) where Accumulate is set, of matrices of float32,
// row after row: op(A) is M×K, op(B) is K×N. Where TransA is set A is stored K×M, where TransB is set B
// is stored N×K. Where BFloat16 is set both are rounded to it first, and sums stay in float32.
type Multiply struct {
	A, B, C        Addr
	M, N, K        int // at most 2^31-1
	TransA, TransB bool
	Accumulate     bool
	BFloat16       bool
}

// Library multiplies matrices in the place of kernels. It belongs to one device. Its errors are an
// [*Error].
type Library interface {
	// Bind makes products run on a stream from now on, and gives them memory of the device to work in.
	// It is called once, before the first product.
	Bind(s Stream, workspace Addr, bytes int64) error
	// Multiply queues a product. It asks for no memory of the device.
	Multiply(op Multiply) error
	// Close ends the library, when queued work is done.
	Close() error
}
