package cachingsim

import "fmt"

// Event is one event of a step: the allocation of a buffer, or its end.
type Event struct {
	ID    int   // of the buffer
	Bytes int64 // of an allocation; 0 is the end
}

// Replay plays the events of a step. Buffers that have no end stay allocated; their
// addresses are returned, by buffer.
func (a *Allocator) Replay(events []Event) (live map[int]int64, err error) {
	live = map[int]int64{}
	for i, e := range events {
		address, known := live[e.ID]
		switch {
		case e.Bytes == 0 && known:
			delete(live, e.ID)
			err = a.Free(address)
		case e.Bytes == 0:
			err = fmt.Errorf("%w: buffer %d", ErrUnknown, e.ID)
		case known:
			err = fmt.Errorf("cachingsim: buffer %d is allocated already", e.ID)
		default:
			live[e.ID], err = a.Malloc(Request{Bytes: e.Bytes})
		}
		if err != nil {
			return live, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return live, nil
}
