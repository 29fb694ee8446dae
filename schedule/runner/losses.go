package runner

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
)

// losses holds a rank's losses of a step.
type losses[T any] struct {
	objective int // index of the objective's loss, or -1 if there is none
	ledger    *loss.Ledger
	cells     deviceLosses[T]
	record    loss.Record // the losses of all ranks, at step end
	other     loss.Record // scratch: another rank's losses
}

// open makes the ledger, and the cells for the losses that the rank's stages declare.
func (l *losses[T]) open(defs []loss.Def, space memory.Space[T], declared []*frames.Declaration[T]) (err error) {
	l.objective = slices.IndexFunc(defs, func(d loss.Def) bool { return d.Objective })
	if l.ledger, err = loss.NewLedger(defs); err != nil {
		return err
	}
	return l.cells.open(space, declared)
}

// deviceLosses holds the cells for losses on a rank's device (L3). The zero value has none.
type deviceLosses[T any] struct {
	device loss.DeviceCells[T] // the rank's space; nil if there are no cells
	handle *T                  // of class memory.Loss; nil if there are no cells
	words  []int64             // read at step end
}

// open allocates the cells if the space supports them and a stage of the rank records a loss.
func (d *deviceLosses[T]) open(space memory.Space[T], layouts []*frames.Declaration[T]) error {
	cells, ok := space.(loss.DeviceCells[T])
	count := 0
	for _, layout := range layouts {
		if layout != nil {
			for _, def := range layout.Losses {
				count = max(count, def+1)
			}
		}
	}
	if !ok || count == 0 {
		return nil
	}
	handle, err := cells.NewLossCells(count)
	if err != nil {
		return fmt.Errorf("cells of losses: %w", err)
	}
	d.device, d.handle, d.words = cells, &handle, make([]int64, count*loss.DeviceWords)
	return nil
}

// reset sets the cells to zero at the beginning of a step.
func (d *deviceLosses[T]) reset() error {
	if d.device == nil {
		return nil
	}
	return d.device.ClearLossCells(*d.handle)
}

// join waits for the device at step end, and adds the losses in the cells to the ledger.
func (d *deviceLosses[T]) join(ledger *loss.Ledger) error {
	if d.device == nil {
		return nil
	}
	if err := d.device.ReadLossCells(d.words, *d.handle); err != nil {
		return err
	}
	for def := range len(d.words) / loss.DeviceWords {
		if err := ledger.Join(def, d.words[def*loss.DeviceWords:][:loss.DeviceWords]); err != nil {
			return err
		}
	}
	return nil
}

// close releases the cells.
func (d *deviceLosses[T]) close(space memory.Space[T]) error {
	if d.device == nil {
		return nil
	}
	d.device = nil
	_, err := space.Release(*d.handle)
	return err
}
