package traces

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/internal/unzip"
	"github.com/weir-ml/weir/schedule"
)

// ErrTrace is wrapped by errors about a file that is not a trace.
var ErrTrace = errors.New("not a trace")

// Span is an action that a rank ran. Times are in nanoseconds, by the clock of the rank's host.
type Span struct {
	Kind              schedule.Kind // a computation, a send or a receive
	Stage, Microbatch int           // -1 if the trace does not say
	Start, End        int64
}

// Trace holds the spans of one rank, in order of their start times.
type Trace struct {
	File  string
	Rank  int
	World int    // number of ranks of the job; 0 if the trace does not say
	Host  string // "" if the trace does not say
	Spans []Span
}

const (
	maxRank  = 1 << 20
	maxSpans = 4 << 20 // maximum number of spans in a file
)

// Read reads traces from files, folders and patterns of filepath.Glob. It returns those that
// contain actions, sorted by rank, or an error if a rank has two traces. In folders, it skips
// files that do not end in .json, .json.gz or .jsonl.
func Read(names ...string) ([]*Trace, error) {
	files, _, err := unzip.Expand(names, endings.MatchString)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: no file in %q ends in .json, .json.gz or .jsonl: name the files", ErrTrace, names)
	}
	var all []*Trace
	for _, name := range files {
		found, err := readFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b *Trace) int { return cmp.Compare(a.Rank, b.Rank) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.Rank == b.Rank {
			return nil, fmt.Errorf("rank %d has two traces, in %s and %s: give those of one run", a.Rank, a.File, b.File)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no span is named after an action, as PP:2F7 is: newer versions of PyTorch annotate the actions of a pipeline, and record_function does it in older ones", ErrTrace)
	}
	return all, nil
}

var endings = regexp.MustCompile(`\.(json|jsonl)(\.gz)?$`)

func readFile(name string) ([]*Trace, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() // It was only read.
	return ReadFrom(name, file)
}

// ReadFrom reads the traces of one file, which may be compressed. If its content does not state
// the rank, the file's name does.
func ReadFrom(name string, r io.Reader) ([]*Trace, error) {
	in, err := unzip.Open(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrTrace, err)
	}
	f := &file{scanner: scanner{in: in}, ranks: map[int]*Trace{}, counts: map[int][2]int{}}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f.traces(name)
}

// file holds the spans of a file that is being read.
type file struct {
	scanner
	header
	spans int // the number of spans in all lists
	// host and device hold Kineto's annotations. ranks holds the spans of files with several
	// ranks.
	host, device []Span
	ranks        map[int]*Trace
	counts       map[int][2]int // the numbers of Megatron's forwards and backwards since the last forward of microbatch 0, by rank
}

// of returns the trace of a rank in a file with several ranks.
func (f *file) of(rank int) *Trace {
	if f.ranks[rank] == nil {
		f.ranks[rank] = &Trace{Rank: rank}
	}
	return f.ranks[rank]
}

// add adds a span to a list.
func (f *file) add(list *[]Span, s Span) error {
	if f.spans++; f.spans > maxSpans {
		return fmt.Errorf("%w: it has more than %d actions: record fewer steps", ErrTrace, maxSpans)
	}
	*list = append(*list, s)
	return nil
}

// traces returns the traces that were read, with their spans in order.
func (f *file) traces(name string) (all []*Trace, err error) {
	spans := f.device
	if !slices.ContainsFunc(spans, func(s Span) bool { return s.Kind.Compute() }) {
		// A host posts its transfers and continues, so its spans do not time them.
		spans = slices.DeleteFunc(f.host, func(s Span) bool { return !s.Kind.Compute() })
	}
	if len(spans) > 0 {
		t := &Trace{Rank: rankOf(name), World: f.job.World, Host: hostOf(name), Spans: spans}
		if f.job.Rank != nil {
			t.Rank = *f.job.Rank
		}
		if t.Rank < 0 || t.Rank > maxRank {
			return nil, fmt.Errorf("%s: %w: neither distributedInfo nor its name says which rank it is of: name it after its rank, as in rank3.json", name, ErrTrace)
		}
		for i := range spans {
			spans[i].Start, spans[i].End = spans[i].Start+f.base, spans[i].End+f.base
		}
		f.ranks[t.Rank] = t
	}
	for _, t := range f.ranks {
		t.File = name
		t.sort()
		all = append(all, t)
	}
	return all, nil
}

// sort sorts the spans, and merges overlapping spans of the same action: a device has an
// annotation for each of its streams.
func (t *Trace) sort() {
	slices.SortStableFunc(t.Spans, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	last := map[Span]int{} // the index of the last span of an action
	merged := t.Spans[:0]
	for _, s := range t.Spans {
		action := Span{Kind: s.Kind, Stage: s.Stage, Microbatch: s.Microbatch}
		if i, known := last[action]; known && s.Start < merged[i].End && s.Microbatch >= 0 {
			merged[i].End = max(merged[i].End, s.End)
			continue
		}
		last[action] = len(merged)
		merged = append(merged, s)
	}
	t.Spans = merged
}

var (
	rankInName = regexp.MustCompile(`(?i)rank[-_.]?(\d+)`)
	lastNumber = regexp.MustCompile(`(\d+)\D*$`)
	// hostInName matches the names that tensorboard_trace_handler gives files: host, process,
	// time.
	hostInName = regexp.MustCompile(`^(.+)_\d+\.\d+\.pt\.trace\.json`)
)

// rankOf returns the rank in a file's name, or -1 if there is none.
func rankOf(name string) int {
	base := filepath.Base(name)
	for _, form := range []*regexp.Regexp{rankInName, lastNumber} {
		if found := form.FindStringSubmatch(base); found != nil {
			if rank, err := strconv.Atoi(found[1]); err == nil && rank <= maxRank {
				return rank
			}
		}
	}
	return -1
}

func hostOf(name string) string {
	if found := hostInName.FindStringSubmatch(filepath.Base(name)); found != nil {
		return found[1]
	}
	return ""
}

// maxTime bounds times in nanoseconds, so that differences do not overflow.
const maxTime = math.MaxInt64 / 4
