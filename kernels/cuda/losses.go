package cuda

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
)

// lossBytes is the size of a loss cell in bytes.
const lossBytes = 8 * loss.DeviceWords

// NewLossCells returns n cells in a buffer of class memory.Loss, owned by the caller. They are
// not cleared.
func (d *Device) NewLossCells(n int) (kernels.Buffer, error) {
	return d.Alloc(memory.Loss, kernels.Int32, n*lossBytes/4)
}

// ClearLossCells queues the clearing of cells.
func (d *Device) ClearLossCells(cells kernels.Buffer) error {
	o := d.begin("ClearLossCells", nil)
	o.zero(o.at(cells), cells.N)
	return o.end()
}

// ReadLossCells waits for the work queued so far and reads cells.
func (d *Device) ReadLossCells(words []int64, cells kernels.Buffer) error {
	raw := make([]byte, 8*len(words))
	at, err := d.at(cells)
	if err == nil {
		err = d.flush()
	}
	if err == nil {
		err = d.read(raw, at)
	}
	if err != nil {
		return fmt.Errorf("cuda: ReadLossCells: %w", err)
	}
	for i := range words {
		words[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return nil
}

// AddHeadLoss queues the work of HeadLoss and the addition of its two sums to a cell. For the zero
// Cell it omits the addition.
func (d *Device) AddHeadLoss(op kernels.HeadLoss, cell kernels.Cell, microbatch int) error {
	h := d.headLoss("AddHeadLoss", op)
	if cell == (kernels.Cell{}) {
		return h.end()
	}
	if n := cell.Buffer.N * 4 / lossBytes; cell.Index < 0 || cell.Index >= n || cell.Buffer.Type != kernels.Int32 {
		return fmt.Errorf("%w: AddHeadLoss: the index of the cell is %d, the slab has %d cells", kernels.ErrShape, cell.Index, n)
	}
	h.line("loss_add", 1, 1, h.at(cell.Buffer)+uint64(cell.Index)*lossBytes, uint64(d.scratch), uint64(microbatch), 0)
	return h.end()
}
