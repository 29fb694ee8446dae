package hang_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dumpGroup is a process group of a job.
type dumpGroup struct {
	Name, Description string
	Ranks             []int
}

// dumpOp is an operation that was issued. Completed is the time of its end, 0 while it is pending.
type dumpOp struct {
	Group              *dumpGroup
	Name               string
	Created, Completed int64
	Sizes              []int64
	Type               string
	p2p                bool
	closing            *dumpOp   // closes the batch of this part
	parts              []*dumpOp // of the batch that this operation closes
	collective, batch  int64
	op, record         int64
}

// dumpRank records the operations of one rank of a job.
type dumpRank struct {
	Rank    int
	Groups  []*dumpGroup // the groups with this rank, in the order of their creation
	Ops     []*dumpOp
	Version string
	// Pending leaves completed operations out of the dump. Ring keeps only the last operations, and Empty keeps
	// none.
	Pending bool
	Ring    int
	Empty   bool
	// Batches is the version of PyTorch that numbers the batches of transfers, 2.4 or 2.6. If it is "", transfers
	// are in no batch.
	Batches string
	open    *dumpOp                  // closes the batch that is being issued
	counts  map[*dumpGroup]*[3]int64 // collectives, transfers, both
}

func (r *dumpRank) count(g *dumpGroup) *[3]int64 {
	if r.counts == nil {
		r.counts = map[*dumpGroup]*[3]int64{}
	}
	if r.counts[g] == nil {
		r.counts[g] = &[3]int64{}
	}
	return r.counts[g]
}

func (r *dumpRank) add(op *dumpOp) *dumpOp {
	op.record = int64(len(r.Ops))
	r.Ops = append(r.Ops, op)
	return op
}

// Collective records an operation of all members of a group.
func (r *dumpRank) Collective(g *dumpGroup, name string, now int64, sizes ...int64) *dumpOp {
	n := r.count(g)
	n[0]++
	n[2]++
	return r.add(&dumpOp{Group: g, Name: "nccl:" + name, Created: now, Sizes: sizes, Type: "Float", collective: n[0], batch: n[1], op: n[2]})
}

// Transfer records a send to a rank of the job or a receive from it. If peer is -1, the receive is from any
// rank.
func (r *dumpRank) Transfer(g *dumpGroup, send bool, peer int, now int64, sizes ...int64) *dumpOp {
	n := r.count(g)
	switch {
	case r.open != nil:
	case r.Batches == "2.4":
		n[0]++
	default:
		n[1]++
	}
	n[2]++
	if r.open == nil && r.Batches != "" {
		r.open = &dumpOp{Group: g, Name: "nccl:coalesced", Created: now}
	}
	own, other := slices.Index(g.Ranks, r.Rank), slices.Index(g.Ranks, peer)
	name := strings.Replace(fmt.Sprintf("nccl:recv %d<-%d", own, other), "<--1", "<-?", 1)
	if send {
		name = fmt.Sprintf("nccl:send %d->%d", own, other)
	}
	op := r.add(&dumpOp{Group: g, Name: name, Created: now, Sizes: sizes, Type: "BFloat16", p2p: true, collective: n[0], batch: n[1], op: n[2], closing: r.open})
	if r.open != nil {
		r.open.parts = append(r.open.parts, op)
		r.open.collective, r.open.batch, r.open.op = n[0], n[1], n[2]
	}
	return op
}

// Close ends the open batch, like endCoalescing in ProcessGroupNCCL.cpp. It records an operation that has no sizes,
// does not count as a transfer (isP2POp is false for COALESCED), and has the numbers of the last part. The parts have
// no events, so they never complete. startCoalescing raises the number of collectives in PyTorch 2.4, and since 2.6 the
// first transfer in the batch raises that of transfers; op_id counts every part.
func (r *dumpRank) Close() {
	if r.open != nil {
		r.add(r.open)
		r.open = nil
	}
}

// ended returns the time at which the recorder saw the operation complete, or 0 if it did not.
func (op *dumpOp) ended() (last int64) {
	if op.closing != nil {
		return 0
	}
	for _, part := range op.parts {
		if last = max(last, part.Completed); part.Completed == 0 {
			return 0
		}
	}
	return max(last, op.Completed)
}

// dump returns the dump as a Python object.
func (r *dumpRank) dump(asText bool) map[string]any {
	config, status := map[string]any{}, map[string]any{}
	number := func(n int64) any {
		if asText {
			return fmt.Sprint(n)
		}
		return n
	}
	for i, g := range r.Groups {
		config[g.Name] = map[string]any{"name": g.Name, "desc": g.Description, "ranks": strings.ReplaceAll(fmt.Sprint(g.Ranks), " ", ", ")}
		enqueued, completed := int64(-1), int64(-1)
		for _, op := range r.Ops {
			if n := max(op.batch, op.collective); op.Group == g && op.closing == nil {
				enqueued = max(enqueued, n)
				if op.ended() > 0 {
					completed = max(completed, n)
				}
			}
		}
		status[fmt.Sprint(i)] = map[string]any{"last_enqueued_collective": number(enqueued), "last_started_collective": number(-1), "last_completed_collective": number(completed)}
	}
	ops := r.Ops
	if r.Ring > 0 {
		ops = ops[max(0, len(ops)-r.Ring):]
	}
	entries := []any{}
	for _, op := range ops {
		if !r.Empty && (!r.Pending || op.ended() == 0) {
			entries = append(entries, r.entry(op))
		}
	}
	version := r.Version
	if version == "" {
		version = "2.9"
	}
	return map[string]any{"version": version, "pg_config": config, "pg_status": status, "entries": entries}
}

func (r *dumpRank) entry(op *dumpOp) map[string]any {
	state, completed := "scheduled", any(nil)
	if ended := op.ended(); ended > 0 {
		state, completed = "completed", ended
	}
	shapes, types := []any{}, []any{}
	if op.Type != "" {
		shape := []any{}
		for _, size := range op.Sizes {
			shape = append(shape, size)
		}
		shapes, types = []any{shape}, []any{op.Type}
	}
	return map[string]any{
		"record_id": op.record, "pg_id": int64(slices.Index(r.Groups, op.Group)), "process_group": []any{op.Group.Name, op.Group.Description},
		"collective_seq_id": op.collective, "p2p_seq_id": op.batch, "op_id": op.op, "profiling_name": op.Name, "time_created_ns": op.Created,
		"input_sizes": shapes, "input_dtypes": types, "output_sizes": shapes, "output_dtypes": types,
		"state": state, "time_discovered_started_ns": nil, "time_discovered_completed_ns": completed, "retired": op.ended() > 0,
		"timeout_ms": int64(600000), "is_p2p": op.p2p, "thread_name": "python3",
	}
}

// JSON returns the dump in JSON, where numbers of pg_status are texts.
func (r *dumpRank) JSON() []byte {
	text, err := json.Marshal(r.dump(true))
	if err != nil {
		panic(err)
	}
	return text
}

// Pickle returns the dump as PyTorch pickles it, in protocol 2, each text once.
func (r *dumpRank) Pickle() []byte {
	p := pickler{b: []byte{0x80, 2}, memo: map[string]int{}}
	p.value(r.dump(false))
	return append(p.b, '.')
}

type pickler struct {
	b    []byte
	memo map[string]int
}

func (p *pickler) value(v any) {
	switch v := v.(type) {
	case nil:
		p.b = append(p.b, 'N')
	case bool:
		op := byte(0x89)
		if v {
			op = 0x88
		}
		p.b = append(p.b, op)
	case int64:
		p.b = append(p.b, 0x8a, 8)
		p.b = binary.LittleEndian.AppendUint64(p.b, uint64(v))
	case string:
		if at, known := p.memo[v]; known {
			p.b = append(p.b, 'j')
			p.b = binary.LittleEndian.AppendUint32(p.b, uint32(at))
			return
		}
		p.b = append(p.b, 'X')
		p.b = binary.LittleEndian.AppendUint32(p.b, uint32(len(v)))
		p.b = append(append(p.b, v...), 'r')
		p.b = binary.LittleEndian.AppendUint32(p.b, uint32(len(p.memo)))
		p.memo[v] = len(p.memo)
	case []any:
		p.b = append(p.b, ']', '(')
		for _, item := range v {
			p.value(item)
		}
		p.b = append(p.b, 'e')
	case map[string]any:
		p.b = append(p.b, '}', '(')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			p.value(key)
			p.value(v[key])
		}
		p.b = append(p.b, 'u')
	default:
		panic(fmt.Sprintf("%T", v))
	}
}
