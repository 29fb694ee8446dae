package traces

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/unzip"
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
	File      string
	Rank      int
	WorldSize int    // number of ranks of the job; 0 if the trace does not say
	Host      string // "" if the trace does not say
	Spans     []Span
	// Launches lists the kinds of computations that have spans only on the host although kernels run on a device:
	// these spans time launches, not the work. It is nil if there are none. Annotated reports whether other
	// computations have spans on the device.
	Launches  []schedule.Kind
	Annotated bool
}

const (
	maxRank  = 1 << 20
	maxSpans = 4 << 20 // maximum number of spans in a file
)

// Read reads traces from files, folders and patterns of filepath.Glob. It returns those that
// contain actions, sorted by rank, or an error if there are none, or if a rank has two. In
// folders, it skips files that do not end in .json or .jsonl, with or without .gz.
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
		_, lines, _ := strings.Cut(annotate, "torch.profiler.\"\"\"\n")
		return nil, fmt.Errorf("%w: no span is named after an action, as PP:2F7 is. PyTorch 2.15 names the actions of its schedules except those of Schedule1F1B; 2.6 names those of GPipe alone. "+
			"These lines name them; run them for every stage before the first step, and record anew:\n%s", ErrTrace, strings.TrimRight(lines, "\n"))
	}
	return all, nil
}

//go:embed annotate.py
var annotate string

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
	f := &file{scanner: scanner{in: in}, device: map[string][]Span{}, transferring: map[string]bool{}, ranks: map[int]*Trace{}, counts: map[int][2]int{}}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f.traces(name)
}

// file holds the spans of a file that is being read.
type file struct {
	scanner
	header header
	spans  int // the number of spans in all lists
	// host and device hold Kineto's annotations, those of a device by its stream. ranks holds the
	// spans of files with several ranks.
	host         []Span
	device       map[string][]Span
	transferring map[string]bool // streams with kernels that communicate
	kernels      bool            // the file has kernels of a device
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
	host, spans := f.host, f.onDevice()
	if staged := func(s Span) bool { return s.Stage >= 0 }; slices.ContainsFunc(host, staged) {
		// PyTorch's GPipe names its actions without a stage, and annotate.py names them again.
		host = slices.DeleteFunc(host, func(s Span) bool { return !staged(s) })
	}
	annotated := slices.ContainsFunc(spans, Span.computes)
	var launches []schedule.Kind
	if f.kernels || annotated {
		launches = unannotated(host, spans)
	}
	if !annotated {
		// A host posts its transfers and continues, so its spans do not time them.
		spans = slices.DeleteFunc(host, func(s Span) bool { return !s.computes() })
	}
	if len(spans) > 0 {
		t := &Trace{Rank: rankOf(name), WorldSize: f.header.job.World, Host: hostOf(name), Spans: spans, Launches: launches, Annotated: annotated}
		if f.header.job.Rank != nil {
			t.Rank = *f.header.job.Rank
		}
		if t.Rank < 0 || t.Rank > maxRank {
			return nil, fmt.Errorf("%s: %w: neither distributedInfo nor its name says which rank it is of: name it after its rank, as in rank3.json", name, ErrTrace)
		}
		for i := range spans {
			spans[i].Start, spans[i].End = spans[i].Start+f.header.base, spans[i].End+f.header.base
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

func (s Span) computes() bool { return s.Kind.Compute() }

// action returns the span without its times.
func (s Span) action() Span { return Span{Kind: s.Kind, Stage: s.Stage, Microbatch: s.Microbatch} }

// unannotated returns the kinds of computations that have spans on the host but not on the device. It
// leaves out the I of stage 0: that stage has no gradient of an input to compute.
func unannotated(host, device []Span) (list []schedule.Kind) {
	has := map[schedule.Kind]bool{}
	for _, s := range device {
		has[s.Kind] = true
	}
	for _, s := range host {
		if first := s.Kind == schedule.I && s.Stage == 0; s.computes() && !first && !has[s.Kind] {
			has[s.Kind], list = true, append(list, s.Kind)
		}
	}
	slices.Sort(list)
	return list
}

// onDevice returns the device's annotations, one for each action. An action has an annotation on every stream
// that runs one of its kernels. The annotation on the stream that computes the most counts, and those that
// overlap it on other computing streams extend it. Streams that communicate do not extend it, because they
// reduce gradients after the action. If the host has an I of stage 0 for which the device ran no kernel, an
// empty span stands for it in front of its W.
func (f *file) onDevice() (spans []Span) {
	order := slices.SortedFunc(maps.Keys(f.device), func(a, b string) int {
		x, y := f.computing(a), f.computing(b)
		return cmp.Or(slices.Compare(y[:], x[:]), cmp.Compare(a, b))
	})
	at := map[Span][]int{} // indices of spans by action
	for _, stream := range order {
		own := &Trace{Spans: f.device[stream]}
		own.sort()
		known := len(spans)
		for _, s := range own.Spans {
			same := at[s.action()]
			if len(same) == 0 || same[0] >= known { // No earlier stream has the action.
				at[s.action()] = append(same, len(spans))
				spans = append(spans, s)
				continue
			}
			i, _ := slices.BinarySearchFunc(same, s.Start, func(i int, start int64) int { return cmp.Compare(spans[i].End, start+1) })
			if i < len(same) && spans[same[i]].Start < s.End && !f.transferring[stream] {
				it := &spans[same[i]]
				it.Start, it.End = min(it.Start, s.Start), max(it.End, s.End)
			}
		}
	}
	if first := (Span{Kind: schedule.I}); slices.ContainsFunc(f.host, func(s Span) bool { return s.Kind == first.Kind && s.Stage == 0 }) {
		for _, s := range spans {
			if first.Microbatch = s.Microbatch; s.Kind == schedule.W && s.Stage == 0 && at[first] == nil {
				spans = append(spans, Span{schedule.I, 0, s.Microbatch, s.Start, s.Start})
			}
		}
	}
	return spans
}

// computing returns the sort key of a stream: 0 if it communicates and 1 if not, the number of its
// computations, and their time.
func (f *file) computing(stream string) (n [3]int64) {
	if !f.transferring[stream] {
		n[0] = 1
	}
	for _, s := range f.device[stream] {
		if s.computes() {
			n[1], n[2] = n[1]+1, n[2]+s.End-s.Start
		}
	}
	return n
}

// sort sorts the spans, and merges overlapping spans of the same action, which were annotated twice, unless their
// microbatch is unknown.
func (t *Trace) sort() {
	slices.SortStableFunc(t.Spans, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	last := map[Span]int{} // the index of the last span of an action
	merged := t.Spans[:0]
	for _, s := range t.Spans {
		if i, known := last[s.action()]; known && s.Start < merged[i].End && s.Microbatch >= 0 {
			merged[i].End = max(merged[i].End, s.End)
			continue
		}
		last[s.action()] = len(merged)
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
