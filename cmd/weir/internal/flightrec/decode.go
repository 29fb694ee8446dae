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

	"github.com/weir-ml/weir/internal/formats/pickle"
)

// ErrDump is wrapped by the errors about a file that is not a dump of a flight recorder.
var ErrDump = errors.New("not a flight recorder dump")

// maxMemory is the maximum number of bytes used to read one dump.
const maxMemory = 512 << 20

// dump reads one dump, pickled or in JSON.
func (s *Set) dump(name string, r io.Reader, json bool) error {
	read := pickle.Read
	if json {
		read = pickle.ReadJSON
	}
	data, err := read(r, pickle.Options{Memory: maxMemory, Err: ErrDump, Content: "flight recorder dump", Writer: "PyTorch's flight recorder"})
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
	entries []entry
}

// entry is an entry of the file. The entries of a batch and the entry that closes it have equal values of
// batch.
type entry struct {
	Operation
	batch  batch
	op     int64
	closes bool
}

// batch has the two counts that all entries of a batch of operations share, and that no other operation of the group
// has. For each batch, ProcessGroupNCCL.cpp increases one of the counts: the count of collectives in PyTorch 2.4,
// whatever the batch contains, and the count of the batch's kind in 2.6 and later.
type batch struct {
	group                 int32
	collective, transfers int64
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
	major, minor, _ := strings.Cut(version, ".")
	if major != "2" && major != "" {
		return fault("it is of version %q, and 2.0 to 2.%d can be read", version, newest)
	}
	if n, err := strconv.Atoi(minor); major != "" && (err != nil || n > newest) {
		d.dump.Newer = version
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
	d.entries = make([]entry, 0, len(items))
	for i, item := range items {
		if item.Kind != pickle.Dict {
			return fault("entry %d is %v, where a dict belongs", i, item.Kind)
		}
		d.entry(item)
	}
	slices.SortStableFunc(d.entries, func(a, b entry) int { return cmp.Compare(a.Record, b.Record) })
	d.join(parts["pg_status"])
	d.closeBatches()
	d.count()
	return nil
}

// Cut is the name of the operation that stands for a batch whose parts are not in the dump.
const Cut = "batch (its operations are not in the dump)"

// newest is the minor number of the last known version, 2.10.
const newest = 10

const entryBytes = 40 + 88 // bytes for an entry of the dump and for an entry of the file

// closeBatches gives the parts of each batch the state of the entry that closes it, and drops the closing entries.
// PyTorch 2.4 to 2.6 records no parts of a batch of collectives; the entry that closes it stands
// for them.
//
// The first operation of a dump may close a batch whose parts are all missing from the dump. It waits for
// unknown ranks, as a receive from any rank does.
//
// A dump of only the active operations has all parts, but lacks the closing entries of the batches that have
// ended, so the numbers of its records have gaps.
func (d *decoder) closeBatches() {
	closing, parts := map[batch]*entry{}, map[batch]int{}
	batched := make([]bool, len(d.dump.Groups)) // groups with batches
	history := false                            // completed operations are in the dump
	d.dump.Complete = true
	for i := range d.entries {
		e := &d.entries[i]
		history = history || e.Completed
		d.dump.Complete = d.dump.Complete && (i == 0 || e.Record == d.entries[i-1].Record+1)
		if e.closes {
			closing[e.batch] = e
		} else {
			parts[e.batch]++
		}
		// A transfer that is not completed although the last completed one has the same number is part of a batch,
		// and so is a transfer with the number 0.
		numbered := e.Kind != Collective && (e.batch.transfers == 0 || e.batch.transfers == d.dump.Groups[e.Group].Status.Completed)
		batched[e.Group] = batched[e.Group] || e.closes || e.batch.transfers >= 0 && (parts[e.batch] > 1 || numbered)
	}
	d.dump.Complete = d.dump.Complete && history
	d.dump.first = len(d.entries) > 0 && d.entries[0].Record == 0
	known := map[batch]int32{}
	d.dump.Operations = make([]Operation, 0, len(d.entries))
	kept := d.entries[:0]
	last, gap := -1, false // of the parts that follow each other, and whether a record is missing after it
	for i, e := range d.entries {
		if i > last {
			for last = i; last+1 < len(d.entries) && d.entries[last+1].batch == e.batch && !d.entries[last+1].closes; last++ {
			}
			gap = last+1 == len(d.entries) || d.entries[last+1].Record > d.entries[last].Record+1
		}
		cut := e.closes && i == 0 && e.Record > 0 && parts[e.batch] == 0
		if e.closes && parts[e.batch] > 0 || cut && e.Completed {
			continue
		}
		if cut {
			e.Call, e.Peer = &Call{Kind: Recv, Name: Cut}, -1
			kept = append(kept, e)
			continue
		}
		end, closed := closing[e.batch]
		switch {
		case closed && !e.closes:
			e.Completed = e.Completed || end.Completed
		case history || e.Completed || !gap || !batched[e.Group] || e.Kind == Collective && parts[e.batch] < 2:
			kept = append(kept, e)
			continue
		default:
			e.Completed, d.dump.Unclosed = true, true
		}
		if known[e.batch] == 0 {
			known[e.batch] = int32(len(known) + 1)
		}
		e.Batch = known[e.batch]
		kept = append(kept, e)
	}
	d.entries = kept
}

// count numbers the operations of each group. Collectives have the same numbers on all members, so the numbers
// exclude the batches of transfers that raised the count of collectives in PyTorch 2.4. Numbers of transfers
// count all parts of batches.
func (d *decoder) count() {
	type counts struct {
		last    batch
		batches int64 // batches of transfers counted as collectives
		sent    int64 // transfers
	}
	of := make([]counts, len(d.dump.Groups))
	for _, e := range d.entries {
		c := &of[e.Group]
		switch {
		case e.Kind == Collective:
			e.Number = e.batch.collective - c.batches
		case d.dump.Whole() || e.batch.transfers == 0:
			c.sent++
			e.Number = c.sent
		case !d.dump.Hooked && e.op >= e.batch.collective && e.batch.collective >= 0:
			e.Number = e.op - e.batch.collective
		default:
			e.Number = e.batch.transfers
		}
		if e.Kind != Collective && e.Batch > 0 && e.batch.transfers == c.last.transfers && e.batch.collective > c.last.collective {
			c.batches++
			d.dump.Groups[e.Group].Uncounted = !d.dump.Whole()
		}
		c.last = e.batch
		d.dump.Operations = append(d.dump.Operations, e.Operation)
	}
	d.entries = nil
}

// ranks reads a list of ranks, or a string that contains a list. It returns nil if an element cannot be a rank.
func (d *decoder) ranks(v pickle.Value) (ranks []int) {
	if v.Kind == pickle.Text {
		for word := range strings.FieldsFuncSeq(d.Text(v), func(r rune) bool { return r < '0' || r > '9' }) {
			rank, err := strconv.Atoi(word)
			if err != nil || rank > maxRank {
				return nil
			}
			ranks = append(ranks, rank)
		}
	}
	for _, item := range d.Items(v) {
		rank := d.number(item)
		if rank < 0 || rank > maxRank {
			return nil
		}
		ranks = append(ranks, int(rank))
	}
	return ranks
}

// maxRank is the highest accepted rank.
const maxRank = 1<<24 - 1

// entry reads an operation.
func (d *decoder) entry(v pickle.Value) {
	e := entry{Operation: Operation{Group: -1, Peer: -1}, batch: batch{-1, -1, -1}, op: -1}
	var call, output Call
	var local int64 = -1
	name, retired := "", false
	for key, v := range d.Pairs(v) {
		switch key {
		case "record_id", "id":
			e.Record = d.number(v)
		case "pg_id":
			local = d.number(v)
		case "process_group":
			e.Group = d.member(v)
		case "collective_seq_id", "seq_id":
			e.batch.collective = d.number(v)
		case "p2p_seq_id":
			e.batch.transfers = d.number(v)
		case "op_id":
			e.op = d.number(v)
		case "profiling_name":
			name = d.word(v)
		case "input_sizes":
			call.Sizes = d.word(v, ", ", "x")
		case "input_dtypes":
			call.Type = d.word(v, ",")
		case "output_sizes":
			output.Sizes = d.word(v, ", ", "x")
		case "output_dtypes":
			output.Type = d.word(v, ",")
		case "state":
			e.Completed = d.word(v) == "completed"
		case "retired":
			retired = v.Kind == pickle.Boolean && v.Bits != 0
		}
	}
	if e.Group < 0 {
		e.Group = d.named(strconv.FormatInt(local, 10))
	}
	d.dump.Groups[e.Group].Local, e.batch.group = local, e.Group
	backend, name, _ := strings.Cut(name, ":")
	var place int
	call.Name, call.Kind, place = operation(name)
	e.closes = strings.HasSuffix(name, "coalesced") && call.Type == ""
	if call.Kind != Collective {
		e.Peer = d.peer(e.Group, place)
	}
	if call.Type == "" || call.Name == "all_gather" { // members of an all_gather may give inputs of their own sizes
		call.Sizes, call.Type = output.Sizes, cmp.Or(call.Type, output.Type)
	}
	// A retired operation of NCCL that has not completed has timed out. Gloo retires each operation at its end, or
	// at its failure. In backends that do not report ends, operations are retired when they are issued, and nccl2
	// reports transfers of batches as completed when they are issued.
	native := backend == "nccl" || backend == "xccl" || backend == "gloo"
	d.dump.Hooked = d.dump.Hooked || !native
	if retired && !e.Completed && !strings.HasPrefix(backend, "nccl") && backend != "xccl" {
		e.Completed, e.Unseen = true, true
	} else if e.Completed && call.Kind != Collective && strings.HasPrefix(backend, "nccl") {
		e.Unseen = !native
	}
	if e.Unseen && !native {
		d.dump.Backend = backend
	}
	if d.calls[call] == nil {
		d.calls[call] = &Call{call.Kind, call.Name, call.Sizes, call.Type}
	}
	e.Call = d.calls[call]
	d.entries = append(d.entries, e)
}

// operation parses the name of an operation, such as "all_reduce" or "recv 0<-3". The peer of a transfer is
// given by its place in the group.
func operation(name string) (word string, kind OpKind, peer int) {
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

// peer returns the rank at a place in a group, or -1 if it is unknown. If the ranks of the group are unknown, it
// takes the place to be the rank.
func (d *decoder) peer(group int32, at int) int32 {
	ranks := d.dump.Groups[group].Ranks
	if at < 0 { // counted from the end, as in Python
		at += len(ranks)
	}
	switch {
	case at < 0 || at > maxRank:
	case ranks == nil:
		return int32(at)
	case at < len(ranks):
		return int32(ranks[at])
	}
	return -1
}

// member returns the index of an entry's group, which is given by its name, or by its name and description.
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

// join sets the status of the groups, and the status of groups without entries in Unjoined.
func (d *decoder) join(v pickle.Value) {
	d.dump.Unjoined = map[int64]Status{}
	for key, v := range d.Pairs(v) {
		local, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			continue
		}
		fields := maps.Collect(d.Pairs(v))
		status := Status{d.number(fields["last_enqueued_collective"]), d.number(fields["last_completed_collective"])}
		if d.dump.Hooked && status.Enqueued >= 0 { // op_id of any operation, from 0
			status.Enqueued++
			status.Completed++
		}
		if at := slices.IndexFunc(d.dump.Groups, func(g Group) bool { return g.Local == local }); at >= 0 {
			d.dump.Groups[at].Status = status
		} else {
			d.dump.Unjoined[local] = status
		}
	}
}
