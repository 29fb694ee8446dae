package loss

import "fmt"

// DeviceWords is the size of a cell in device memory, in 64-bit words. A cell contains the words of the
// exact sum and of the exact weight, as in [Exact] (66 limbs, and the number of additions since carries
// were propagated); the number of records; the lowest microbatch whose sum was not finite, plus one; and
// the lowest microbatch whose weight was negative or not finite and which was therefore not recorded,
// plus one. In the last two words 0 means none. A cell of zeros is empty.
const DeviceWords = 2*(limbs+1) + 3

// DeviceCells is an optional interface of a memory.Space that can hold loss cells in its device's memory. The
// device adds to them, so that no goroutine waits for a loss before the end of the step (L3).
type DeviceCells[T any] interface {
	// NewLossCells returns n cells in one buffer of class memory.Loss, owned by the caller.
	NewLossCells(n int) (T, error)
	// ClearLossCells empties the cells once all work queued before it is done.
	ClearLossCells(cells T) error
	// ReadLossCells waits for the device and fills words with the contents of the first cells,
	// DeviceWords words each.
	ReadLossCells(words []int64, cells T) error
}

// OnDevice reports whether a device can accumulate a loss, which must be a Sum or a Mean.
func (l *Ledger) OnDevice(def int) bool { return !l.defs[def].Reduction.extremum() }

// Join adds the records that a device has made of a loss since Reset; words is the content of its cell. It
// returns ErrWeight, and adds nothing, if one of them had an invalid weight.
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
