package cachingsim

import "fmt"

// AllocEvent is the allocation or the freeing of a buffer.
type AllocEvent struct {
	ID    int   // of the buffer
	Bytes int64 // size of an allocation; 0 means a free
}

// Replay replays the events of a step. It returns the addresses, by buffer ID, of the buffers that are
// not freed. It stops at the first event that fails, and returns its error.
func (a *Allocator) Replay(events []AllocEvent) (live map[int]int64, err error) {
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
