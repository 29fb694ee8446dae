package tcp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
)

// hub is the order of a job, on rank 0: what all ranks see is what it has sent, in its order.
type hub struct {
	post []func(frame) // by rank

	mu       sync.Mutex
	epoch    int64
	waiting  []bool // ranks that have begun the next step
	begun    int
	aborted  bool
	lost     bool
	brought  [][]byte // to the exchange, by rank
	arrived  int
	statuses []Status // as of the last heartbeat
}

func newHub(ranks int) *hub {
	h := &hub{post: make([]func(frame), ranks), waiting: make([]bool, ranks), brought: make([][]byte, ranks), statuses: make([]Status, ranks)}
	for rank := range h.statuses {
		h.statuses[rank].Rank = -1
	}
	return h
}

// all posts a frame to every rank.
func (h *hub) all(f frame) {
	for _, post := range h.post {
		post(f)
	}
}

// receive takes a frame of a rank.
func (h *hub) receive(rank int, f frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch f.kind {
	case begin:
		h.begins(rank)
	case withdraw:
		if h.waiting[rank] && f.epoch == h.epoch {
			h.waiting[rank] = false
			h.begun--
			h.post[rank](frame{kind: withdrawn})
		} // else it has begun, and the rank will hear of it
	case exchange:
		if f.epoch == h.epoch && !h.aborted {
			h.brings(rank, f.data)
		}
	case abort:
		if f.epoch == h.epoch && !h.aborted {
			h.aborted = true
			h.all(frame{abort, h.epoch, append(binary.LittleEndian.AppendUint32(nil, uint32(rank)), f.data...)})
		}
	case beat:
		var s Status
		if json.Unmarshal(f.data, &s) == nil {
			s.Rank = rank
			h.statuses[rank] = s
		}
	default:
		return fmt.Errorf("%w: kind %d from rank %d", ErrFrame, f.kind, rank)
	}
	return nil
}

func (h *hub) begins(rank int) {
	if h.waiting[rank] {
		return
	}
	h.waiting[rank] = true
	if h.begun++; h.begun < len(h.post) {
		return
	}
	h.epoch++
	h.begun, h.aborted, h.arrived = 0, false, 0
	clear(h.waiting)
	clear(h.brought)
	h.all(frame{kind: begun, epoch: h.epoch})
}

// brings collects the bytes of the ranks. Once the last has come nothing can take the result
// away: it is in every rank's queue.
func (h *hub) brings(rank int, data []byte) {
	if h.brought[rank] != nil {
		return
	}
	h.brought[rank] = data
	if h.arrived++; h.arrived < len(h.post) {
		return
	}
	var all []byte
	for _, one := range h.brought {
		all = binary.LittleEndian.AppendUint32(all, uint32(len(one)))
		all = append(all, one...)
	}
	h.arrived = 0
	clear(h.brought)
	h.all(frame{exchanged, h.epoch, all})
}

// lose tells all ranks that one is gone. The first one is the one to tell of: others end
// because of it.
func (h *hub) lose(rank int, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost {
		return
	}
	h.lost = true
	h.all(frame{kind: lost, data: encode(&LostError{rank, h.statuses[rank], why})})
}

// decodeAll returns the bytes of every rank.
func decodeAll(b []byte, ranks int) ([][]byte, error) {
	all := make([][]byte, ranks)
	for rank := range all {
		if len(b) < 4 {
			return nil, fmt.Errorf("%w: an exchange of %d ranks", ErrFrame, ranks)
		}
		size := int64(binary.LittleEndian.Uint32(b))
		if b = b[4:]; size > int64(len(b)) {
			return nil, fmt.Errorf("%w: %d bytes of rank %d", ErrFrame, size, rank)
		}
		all[rank], b = b[:size:size], b[size:]
	}
	return all, nil
}
