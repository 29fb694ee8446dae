package product

// sweepArgs are the arguments of the assembly: a call adds the product of a tile of rows of A
// and a block of B to the same rows of C. The block is divided into panels of columns. All
// strides are in bytes. The call modifies b, c, cols and ahead.
type sweepArgs struct {
	a              *float32 // element (i, l) is at a + i·aRow + l·aDepth
	aRow, aDepth   int
	b              *float32 // row l of panel p is at b + p·bPanel + l·bDepth
	bDepth, bPanel int
	c              *float32 // row i is at c + i·cRow
	cRow           int
	add            int // 1: the sums start with C, 0: with zeros
	depth, cols    int // at least 1

	ahead                 uintptr // two cache lines to prefetch are at ahead + p·aheadPanel + l·aheadStep, none if aheadStep is 0
	aheadStep, aheadPanel int

	after uintptr // c of the next call
}
