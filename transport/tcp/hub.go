package tcp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-ml/weir/transport"
)

// hub runs on rank 0 and orders the events of a job: all ranks receive its frames in the same order.
type hub struct {
	post []func(frame) // by rank

	mu        sync.Mutex
	epoch     int64
	waiting   []bool   // ranks that have begun the next step
	hellos    [][]byte // the hellos of these ranks
	beginning int
	aborted   bool
	lost      bool
	exchanged [][]byte // the bytes of each rank in the exchange
	arrived   int
	standings []transport.Standing // as of the last heartbeat; Rank is -1 before the first one

	standing func() transport.Standing // of rank 0
	stall    time.Duration
	lastBeat []time.Time // when the last heartbeat of each rank arrived
	changed  []time.Time // when the standing of each rank last changed
}

func newHub(ranks int, stall time.Duration, standing func() transport.Standing) *hub {
	h := &hub{
		post: make([]func(frame), ranks), waiting: make([]bool, ranks), hellos: make([][]byte, ranks), exchanged: make([][]byte, ranks),
		standings: make([]transport.Standing, ranks), standing: standing, stall: stall, lastBeat: make([]time.Time, ranks), changed: make([]time.Time, ranks),
	}
	for rank := range h.standings {
		h.standings[rank].Rank = -1
	}
	return h
}

// broadcast posts a frame to every rank.
func (h *hub) broadcast(f frame) {
	for _, post := range h.post {
		post(f)
	}
}

// receive handles a frame of a rank.
func (h *hub) receive(rank int, f frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch f.kind {
	case begin:
		if len(f.data) > transport.MostHello {
			return fmt.Errorf("%w: a hello of %d bytes from rank %d", ErrFrame, len(f.data), rank)
		}
		h.addBegin(rank, f.data)
	case withdraw:
		if h.waiting[rank] && f.epoch == h.epoch {
			h.waiting[rank] = false
			h.beginning--
			h.post[rank](frame{kind: withdrawn})
		} // otherwise the step has begun, and the frame that tells the rank is in transit
	case exchange:
		if f.epoch == h.epoch && !h.aborted {
			h.addExchange(rank, f.data)
		}
	case abort:
		if f.epoch == h.epoch && !h.aborted {
			h.abort(rank, f.data)
		}
	case beat:
		var s transport.Standing
		if json.Unmarshal(f.data, &s) == nil {
			h.note(rank, s)
			h.note(0, h.standing())
			h.lookForStall()
		}
	default:
		return fmt.Errorf("%w: kind %d from rank %d", ErrFrame, f.kind, rank)
	}
	return nil
}

func (h *hub) addBegin(rank int, hello []byte) {
	if h.waiting[rank] {
		return
	}
	h.waiting[rank], h.hellos[rank] = true, hello
	if h.beginning++; h.beginning < len(h.post) {
		return
	}
	h.beginning = 0
	clear(h.waiting)
	if err := transport.SameHello(h.hellos); err != nil {
		h.broadcast(frame{kind: differ, data: []byte(strings.TrimPrefix(err.Error(), transport.ErrRanks.Error()))})
		return
	}
	h.epoch++
	h.aborted, h.arrived = false, 0
	clear(h.exchanged)
	for rank := range h.changed {
		h.changed[rank] = time.Now()
	}
	h.broadcast(frame{kind: begun, epoch: h.epoch})
}

// abort ends the step on all ranks. rank is the rank of the cause, or the number of ranks if the hub
// itself ends the step.
func (h *hub) abort(rank int, cause []byte) {
	h.aborted = true
	h.broadcast(frame{abort, h.epoch, append(binary.LittleEndian.AppendUint32(nil, uint32(rank)), cause...)})
}

// note stores the standing in a rank's heartbeat.
func (h *hub) note(rank int, s transport.Standing) {
	s.Rank = rank
	last, now := h.standings[rank], time.Now()
	anew := s.Since < last.Since // it waits for another event, even if the standing looks equal
	last.Since = s.Since
	if h.lastBeat[rank] = now; anew || s != last {
		h.changed[rank] = now
	}
	h.standings[rank] = s
}

// lookForStall ends the step if a rank waits in the step and no standing has changed for too long.
func (h *hub) lookForStall() {
	still, waits := time.Duration(math.MaxInt64), false
	for rank := range h.standings {
		s := &h.standings[rank]
		still = min(still, h.lastBeat[rank].Sub(h.changed[rank]))
		waits = waits || s.Waits && !h.waiting[rank]
	}
	if !waits || h.aborted || still < h.stall {
		return
	}
	stall := &transport.StallError{Still: still, Ranks: slices.Clone(h.standings)}
	h.abort(len(h.post), encode(cause{Stall: stall}))
}

// addExchange adds the bytes of a rank. The last rank completes the exchange: the result is then in
// the queue of every rank and cannot be revoked.
func (h *hub) addExchange(rank int, data []byte) {
	if h.exchanged[rank] != nil {
		return
	}
	h.exchanged[rank] = data
	if h.arrived++; h.arrived < len(h.post) {
		return
	}
	var all []byte
	for _, data := range h.exchanged {
		all = binary.LittleEndian.AppendUint32(all, uint32(len(data)))
		all = append(all, data...)
	}
	h.arrived = 0
	clear(h.exchanged)
	h.broadcast(frame{exchanged, h.epoch, all})
}

// lose ends the job because a rank is lost. It reports only the first lost rank, because the others
// end as a consequence.
func (h *hub) lose(rank int, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost {
		return
	}
	h.lost = true
	err := &LostError{Rank: rank, Reason: why}
	if h.standings[rank].Rank >= 0 {
		err.Last = &h.standings[rank]
	}
	h.broadcast(frame{kind: lost, data: encode(err)})
}

// decodeAll decodes the bytes of every rank.
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
