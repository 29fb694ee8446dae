package flightrec

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/pickle"
)

// ErrDump is wrapped by the errors about a file that is not a dump of a flight recorder.
var ErrDump = errors.New("not a flight recorder dump")

// mostMemory bounds the memory used to read one dump.
const mostMemory = 512 << 20

// dump reads one dump, pickled or in JSON.
func (s *Set) dump(name string, r io.Reader, json bool) error {
	read := pickle.Read
	if json {
		read = pickle.ReadJSON
	}
	data, err := read(r, pickle.Options{Memory: mostMemory, Err: ErrDump, Content: "flight recorder dump", Writer: "PyTorch's flight recorder"})
	if err != nil {
		return err
	}
	d := &decoder{Data: data, dump: &Dump{File: name, Rank: rankOf(name)}, index: map[string]int32{}, words: map[string]string{}, calls: map[Call]*Call{}}
	if err := d.top(data.Top()); err != nil {
		return err
	}
	if d.dump.Rank < 0 {
		return fault("its name ends in no rank: name it after its rank, as in dump_3")
	}
	s.Dumps = append(s.Dumps, d.dump)
	return nil
}

// decoder reduces the values of a dump to records.
type decoder struct {
	*pickle.Data
	dump    *Dump
	index   map[string]int32 // of groups, by name
	words   map[string]string
	calls   map[Call]*Call
	scratch []byte
	batches []batch        // by entry
	closed  map[batch]bool // whether the batch's closing entry has completed
}

// batch identifies operations that are issued together.
type batch struct {
	group     int32
	number    int64
	transfers bool
}

func fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDump, fmt.Sprintf(format, args...))
}

// top reads a dump. It reads the groups first, because the entries refer to them.
func (d *decoder) top(v pickle.Value) error {
	if v.Kind != pickle.Dict {
		return fault("it holds %v, where a dict with entries belongs", v.Kind)
	}
	parts := maps.Collect(d.Pairs(v))
	entries, found := parts["entries"]
	_, configured := parts["pg_config"]
	if !found && !configured {
		return fault("it has no entries and no pg_config: torch.distributed writes them if TORCH_NCCL_TRACE_BUFFER_SIZE is more than 0")
	}
	version := d.word(parts["version"])
	if major, _, _ := strings.Cut(version, "."); major != "2" && major != "" {
		return fault("it is of version %q, and 2.0 to 2.10 can be read", version)
	}
	for name, config := range d.Pairs(parts["pg_config"]) {
		fields := maps.Collect(d.Pairs(config))
		if own, found := fields["name"]; found {
			name = d.word(own)
		}
		at := d.named(name) // may append to Groups
		d.dump.Groups[at].Description, d.dump.Groups[at].Ranks = d.word(fields["desc"]), d.ranks(fields["ranks"])
	}
	items := d.Items(entries)
	if err := d.Hold(int64(len(items)) * entryBytes); err != nil {
		return err
	}
	d.dump.Entries, d.batches, d.closed = make([]Entry, 0, len(items)), make([]batch, 0, len(items)), map[batch]bool{}
	for i, item := range items {
		if item.Kind != pickle.Dict {
			return fault("entry %d is %v, where a dict belongs", i, item.Kind)
		}
		d.entry(item)
	}
	for i := range d.dump.Entries { // a batch has the state of the entry that closes it
		e := &d.dump.Entries[i]
		e.Completed = e.Completed || d.closed[d.batches[i]]
	}
	d.join(parts["pg_status"])
	slices.SortStableFunc(d.dump.Entries, func(a, b Entry) int { return cmp.Compare(a.Record, b.Record) })
	return nil
}

const entryBytes = 40 + 24 // for an entry and its batch

// ranks reads a list of ranks, or a string that contains a list. It returns nil if one of them cannot
// be a rank.
func (d *decoder) ranks(v pickle.Value) (ranks []int) {
	if v.Kind == pickle.Text {
		for word := range strings.FieldsFuncSeq(d.Text(v), func(r rune) bool { return r < '0' || r > '9' }) {
			rank, err := strconv.Atoi(word)
			if err != nil || rank > mostRank {
				return nil
			}
			ranks = append(ranks, rank)
		}
	}
	for _, item := range d.Items(v) {
		rank := d.number(item)
		if rank < 0 || rank > mostRank {
			return nil
		}
		ranks = append(ranks, int(rank))
	}
	return ranks
}

// mostRank is the highest accepted rank.
const mostRank = 1<<24 - 1

// entry reads an operation, and keeps it unless it closes a batch.
func (d *decoder) entry(v pickle.Value) {
	e := Entry{Group: -1, Peer: -1}
	var call Call
	local, collective, transfers, op := int64(-1), int64(-1), int64(0), int64(-1)
	name, transfer := "", false
	for key, v := range d.Pairs(v) {
		switch key {
		case "record_id", "id":
			e.Record = d.number(v)
		case "pg_id":
			local = d.number(v)
		case "process_group":
			e.Group = d.member(v)
		case "collective_seq_id", "seq_id":
			collective = d.number(v)
		case "p2p_seq_id":
			transfers = d.number(v)
		case "op_id":
			op = d.number(v)
		case "profiling_name":
			name = d.word(v)
		case "input_sizes":
			call.Sizes = d.word(v, ", ", "x")
		case "input_dtypes":
			call.Type = d.word(v, ",")
		case "state":
			e.Completed = d.word(v) == "completed"
		case "is_p2p":
			transfer = v.Kind == pickle.Boolean && v.Bits != 0
		}
	}
	if e.Group < 0 {
		e.Group = d.named(strconv.FormatInt(local, 10))
	}
	d.dump.Groups[e.Group].Local = local
	var place int
	call.Name, call.Kind, place = operation(name)
	e.Number = collective
	in := batch{e.Group, collective, false}
	if call.Kind != Collective || transfer {
		e.Number = transfers
		in = batch{e.Group, transfers, true}
		if op >= collective && collective >= 0 {
			e.Number = op - collective
		}
		e.Peer = d.peer(e.Group, place)
	}
	if call.Name == "coalesced" {
		d.closed[in] = e.Completed
		return
	}
	if d.calls[call] == nil {
		d.calls[call] = &Call{call.Kind, call.Name, call.Sizes, call.Type}
	}
	e.Call = d.calls[call]
	d.dump.Entries, d.batches = append(d.dump.Entries, e), append(d.batches, in)
}

// operation parses the name of an operation, "nccl:all_reduce" or "nccl:recv 0<-3". The peer of a
// transfer is given by its place in the group.
func operation(text string) (name string, kind Kind, peer int) {
	_, name, _ = strings.Cut(text, ":")
	word, ends, _ := strings.Cut(name, " ")
	_, to, sends := strings.Cut(ends, "->")
	_, from, receives := strings.Cut(ends, "<-")
	switch {
	case word == "send" && sends:
		kind = Send
	case word == "recv" && receives:
		kind, to = Recv, from
	default:
		return name, Collective, noPeer
	}
	peer, err := strconv.Atoi(to)
	if err != nil {
		peer = noPeer
	}
	return word, kind, peer
}

// noPeer is not a place in any group.
const noPeer = -1 << 31

// peer returns the rank at a place in a group, or -1 if it is unknown.
func (d *decoder) peer(group int32, at int) int32 {
	ranks := d.dump.Groups[group].Ranks
	if at < 0 { // counted from the end, as in Python
		at += len(ranks)
	}
	switch {
	case at < 0 || at > mostRank:
	case ranks == nil:
		return int32(at)
	case at < len(ranks):
		return int32(ranks[at])
	}
	return -1
}

// member returns the group of an entry, given by its name, or by its name and description.
func (d *decoder) member(v pickle.Value) int32 {
	items := d.Items(v)
	if len(items) > 0 {
		v = items[0]
	}
	at := d.named(d.word(v))
	if g := &d.dump.Groups[at]; g.Description == "" && len(items) > 1 {
		g.Description = d.word(items[1])
	}
	return at
}

// named returns the index of the group with a name, and adds the group if it is new.
func (d *decoder) named(name string) int32 {
	at, known := d.index[name]
	if !known {
		at = int32(len(d.dump.Groups))
		d.index[name] = at
		d.dump.Groups = append(d.dump.Groups, Group{Name: name, Local: -1, Status: Status{-1, -1}})
	}
	return at
}

// join sets the status of the groups.
func (d *decoder) join(v pickle.Value) {
	d.dump.Unjoined = map[int64]Status{}
	for key, v := range d.Pairs(v) {
		local, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			continue
		}
		fields := maps.Collect(d.Pairs(v))
		status := Status{d.number(fields["last_enqueued_collective"]), d.number(fields["last_completed_collective"])}
		if at := slices.IndexFunc(d.dump.Groups, func(g Group) bool { return g.Local == local }); at >= 0 {
			d.dump.Groups[at].Status = status
		} else {
			d.dump.Unjoined[local] = status
		}
	}
}
