package loss

import "fmt"

// DeviceWords is the size of a cell in the memory of a device, in words of 64 bits: those of the
// exact sum and of the exact weight, as [Exact] has them (66 limbs, and how many were added
// since its carries were settled), the number of records, and twice one more than a
// microbatch: the lowest whose sum was not finite, and the lowest whose weight was negative or
// not finite, which was not recorded. 0 stands for none. All zeros are an empty cell.
const DeviceWords = 2*(limbs+1) + 3

// Cells is an optional ability of a memory.Space: cells of losses in its device, to which the
// device adds, so that nobody waits for a loss before step end (L3).
type Cells[T any] interface {
	// NewLossCells returns n cells in one buffer of class memory.Loss, which the caller owns.
	NewLossCells(n int) (T, error)
	// ClearLossCells makes them empty, behind the work that is queued.
	ClearLossCells(cells T) error
	// ReadLossCells waits for the device and fills words with the first cells,
	// DeviceWords each.
	ReadLossCells(words []int64, cells T) error
}

// OnDevice reports whether a device can add up a loss: a Sum or a Mean of the set.
func (l *Ledger) OnDevice(def int) bool { return !l.defs[def].Reduction.extremum() }

// Join adds what a device has recorded of a loss since Reset. The error is ErrWeight where
// it has met such a weight.
func (l *Ledger) Join(def int, words []int64) error {
	const sum, weight, count = 0, limbs + 1, 2 * (limbs + 1)
	if bad := words[count+2]; bad != 0 {
		return fmt.Errorf("%w: for %q at microbatch %d", ErrWeight, l.defs[def].Name, bad-1)
	}
	c, o := &l.cells[def], Cell{count: words[count], first: words[count+1] - 1}
	copy(o.sum.w[:], words[sum:])
	copy(o.weight.w[:], words[weight:])
	c.merge(&o)
	l.weights[def] += o.weight.Float64()
	return nil
}
