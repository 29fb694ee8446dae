package tcp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/transport"
)

// hub runs on rank 0 and orders the events of a job: all ranks receive its frames in the same order.
type hub struct {
	status func() transport.RankStatus // rank 0's status
	stall  time.Duration

	mu       sync.Mutex
	ranks    []member
	epoch    int64
	begins   round // hellos of the ranks that have begun the next step
	exchange round
	aborted  bool
	lost     bool
}

// member holds what the hub knows about a rank.
type member struct {
	post     func(frame)
	status   transport.RankStatus // as of the last heartbeat; Rank is -1 before the first one
	lastBeat time.Time            // when the last heartbeat arrived
	changed  time.Time            // when the status last changed
}

// round collects bytes from every rank.
type round struct {
	data    [][]byte // by rank; nil until they arrive
	arrived int
}

// add adds a rank's bytes, unless the rank has already sent some. Once the bytes of all ranks have
// arrived, add returns them and begins a new round.
func (r *round) add(rank int, data []byte) (all [][]byte, complete bool) {
	if r.data[rank] != nil {
		return nil, false
	}
	r.data[rank] = data
	if r.arrived++; r.arrived < len(r.data) {
		return nil, false
	}
	all = r.data
	*r = newRound(len(all))
	return all, true
}

func newRound(ranks int) round { return round{data: make([][]byte, ranks)} }

func newHub(ranks int, stall time.Duration, status func() transport.RankStatus) *hub {
	h := &hub{status: status, stall: stall, ranks: make([]member, ranks), begins: newRound(ranks), exchange: newRound(ranks)}
	for rank := range h.ranks {
		h.ranks[rank].status.Rank = -1
	}
	return h
}

// broadcast posts a frame to every rank.
func (h *hub) broadcast(f frame) {
	for _, m := range h.ranks {
		m.post(f)
	}
}

// receive handles a frame from a rank.
func (h *hub) receive(rank int, f frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch f.kind {
	case begin:
		if len(f.data) > transport.MaxHello {
			return fmt.Errorf("%w: a hello of %d bytes from rank %d", ErrFrame, len(f.data), rank)
		}
		h.addBegin(rank, f.data)
	case withdraw:
		if h.begins.data[rank] != nil && f.epoch == h.epoch {
			h.begins.data[rank] = nil
			h.begins.arrived--
			h.ranks[rank].post(frame{kind: withdrawn})
		} // otherwise the step has begun, and the frame that tells the rank is in transit
	case exchange:
		if f.epoch == h.epoch && !h.aborted {
			h.addExchange(rank, f.data)
		}
	case cancel:
		if f.epoch == h.epoch && !h.aborted && h.exchange.data[rank] != nil {
			h.abort(rank, f.data)
		} // otherwise the step is closed or aborted, and the frame that tells the rank is in transit
	case abort:
		if f.epoch == h.epoch && !h.aborted {
			h.abort(rank, f.data)
		}
	case beat:
		var s transport.RankStatus
		if json.Unmarshal(f.data, &s) == nil {
			h.recordStatus(rank, s)
			h.recordStatus(0, h.status())
			h.detectStall()
		}
	default:
		return fmt.Errorf("%w: kind %d from rank %d", ErrFrame, f.kind, rank)
	}
	return nil
}

func (h *hub) addBegin(rank int, hello []byte) {
	hellos, complete := h.begins.add(rank, hello)
	if !complete {
		h.detectLeft()
		return
	}
	if err := transport.SameHello(hellos); err != nil {
		h.broadcast(frame{kind: differ, data: []byte(diagnostic.Text(err, nil))})
		return
	}
	h.epoch++
	h.aborted, h.exchange = false, newRound(len(h.ranks))
	for rank := range h.ranks {
		h.ranks[rank].changed = time.Now()
	}
	h.broadcast(frame{kind: begun, epoch: h.epoch})
}

// abort ends the step on all ranks. rank is the rank that caused the abort, or the number of ranks if
// the hub itself ends the step.
func (h *hub) abort(rank int, cause []byte) {
	h.aborted = true
	h.broadcast(frame{abort, h.epoch, append(binary.LittleEndian.AppendUint32(nil, uint32(rank)), cause...)})
}

// recordStatus stores the status in a rank's heartbeat.
func (h *hub) recordStatus(rank int, s transport.RankStatus) {
	m, now := &h.ranks[rank], time.Now()
	s.Rank = rank
	newWait := s.Since < m.status.Since // a different wait, even if the statuses look equal
	m.status.Since = s.Since
	if m.lastBeat = now; newWait || s != m.status {
		m.changed = now
	}
	m.status = s
}

// detectStall ends the step if a rank waits in the step and no status has changed for too long.
func (h *hub) detectStall() {
	still, waits := time.Duration(math.MaxInt64), false
	var statuses []transport.RankStatus
	for rank, m := range h.ranks {
		still = min(still, m.lastBeat.Sub(m.changed))
		waits = waits || m.status.Waits && h.begins.data[rank] == nil
		statuses = append(statuses, m.status)
	}
	if !waits || h.aborted || still < h.stall {
		return
	}
	stall := &transport.StallError{IdleFor: still, Ranks: statuses}
	h.abort(len(h.ranks), encode(cause{Stall: stall}))
}

// detectLeft ends the step if ranks wait in an exchange for a rank that begins the next step.
func (h *hub) detectLeft() {
	if h.aborted || h.exchange.arrived == 0 {
		return
	}
	for rank := range h.ranks {
		if h.begins.data[rank] != nil && h.exchange.data[rank] == nil {
			h.abort(len(h.ranks), encodeCause(fmt.Errorf("%w: rank %d begins the next one, and others wait for it in an exchange", transport.ErrRanks, rank)))
			return
		}
	}
}

// addExchange adds a rank's bytes. The last rank completes the exchange: the result is then in every
// rank's queue and cannot be revoked.
func (h *hub) addExchange(rank int, data []byte) {
	all, complete := h.exchange.add(rank, data)
	if !complete {
		h.detectLeft()
		return
	}
	var b []byte
	for _, data := range all {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
		b = append(b, data...)
	}
	h.broadcast(frame{exchanged, h.epoch, b})
}

// loseRank ends the job because a rank is lost. It reports only the first lost rank, because the
// others are lost as a consequence.
func (h *hub) loseRank(rank int, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost {
		return
	}
	h.lost = true
	err := &LostError{Rank: rank, Reason: why}
	if last := &h.ranks[rank].status; last.Rank >= 0 {
		err.Last = last
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
