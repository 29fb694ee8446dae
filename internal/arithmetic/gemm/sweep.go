package gemm

// sweepArgs holds the arguments of the assembly. A call adds the product of a tile of rows of A
// and a block of B to the same rows of C. The block is divided into panels of columns. All
// strides are in bytes. The call modifies b, c, cols and ahead.
type sweepArgs struct {
	a              *float32 // element (i, l) is at a + i·aRow + l·aDepth
	aRow, aDepth   int
	b              *float32 // row l of panel p is at b + p·bPanel + l·bDepth
	bDepth, bPanel int
	c              *float32 // row i is at c + i·cRow
	cRow           int
	add            int // 1 if the sums start from C, 0 if they start from zero
	depth, cols    int // at least 1

	ahead                 uintptr // the two cache lines at ahead + p·aheadPanel + l·aheadStep are prefetched; none if aheadStep is 0
	aheadStep, aheadPanel int

	after uintptr // c of the next call
}
