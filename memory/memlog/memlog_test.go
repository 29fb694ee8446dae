package memlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// full returns a sample in which no two numbers are equal.
func full() memory.Sample {
	s := memory.Sample{
		Time: 1_700_000_000_000_000_001, Step: 2, Rank: 3, Microbatch: 4, Stage: 5, Kind: "B",
		Live: 6, Peak: 7, Reserved: 8, Excess: -9, Growth: -10, Weight: 11.5, WaitData: 12,
	}
	for i := range s.Classes {
		s.Classes[i] = int64(100 + i)
	}
	return s
}

const fullLine = `{"schema":1,"time":1700000000000000001,"step":2,"rank":3,"microbatch":4,"stage":5,"action":"B",` +
	`"live":6,"peak":7,"reserved":8,"excess":-9,"growth":-10,"weight":11.5,"wait_data":12,` +
	`"classes":{"resident":100,"entry":101,"activation":102,"actgrad":103,"saved":104,"carry":105,` +
	`"transfer":106,"workspace":107,"loss":108,"fp8":109,"unsharded":110}}` + "\n"

func TestSampleIsOneLine(t *testing.T) {
	var out bytes.Buffer
	log, s := memlog.New(&out), full()
	log.Sample(&s)
	require.NoError(t, log.Err())
	require.Equal(t, fullLine, out.String())
}

// The call that leaked is read back, and absent if it is unknown.
func TestLeakIsReadBack(t *testing.T) {
	s := memory.Sample{Kind: "W", Growth: 8, Leak: memory.Leak{Stage: 3, Name: "block", Call: "I", Class: memory.Carry}}
	var out bytes.Buffer
	log := memlog.New(&out)
	log.Sample(&s)
	require.Contains(t, out.String(), `"growth":8,"leak_stage":3,"leak_name":"block","leak_call":"I","leak_class":"carry","weight":0`)
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, s.Leak, records[0].Leak)
	s.Leak = memory.Leak{}
	out.Reset()
	log.Sample(&s)
	require.NotContains(t, out.String(), "leak", "it is unknown")
}

// The classes at the peak are the last key, and absent if the allocator does not report them.
func TestPeakClasses(t *testing.T) {
	var out bytes.Buffer
	s := full()
	for i := range s.PeakClasses {
		s.PeakClasses[i] = int64(200 + i)
	}
	memlog.New(&out).Sample(&s)
	require.Equal(t, fullLine[:len(fullLine)-2]+`,"peak_classes":{"resident":200,"entry":201,"activation":202,"actgrad":203,"saved":204,"carry":205,`+
		`"transfer":206,"workspace":207,"loss":208,"fp8":209,"unsharded":210}}`+"\n", out.String())
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{{Schema: 1, Sample: s}}, records)
}

// The keys of far memory follow those of the peak, and are absent if the rank has used none. The far
// peak of a line covers the omitted records.
func TestFarMemory(t *testing.T) {
	var out bytes.Buffer
	s := full()
	s.Far, s.FarPeak, s.FarPlanned = 300, 400, 450
	memlog.New(&out).Sample(&s)
	require.Equal(t, strings.Replace(fullLine, `"reserved"`, `"far":300,"far_peak":400,"far_planned":450,"reserved"`, 1), out.String())
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{{Schema: 1, Sample: s}}, records)

	out.Reset()
	log := memlog.New(&out)
	log.Every(2)
	s = memory.Sample{Peak: 9, FarPeak: 1, FarPlanned: 1}
	log.Sample(&s)
	s = memory.Sample{Peak: 7, FarPeak: 500, FarPlanned: 600}
	log.Sample(&s)
	s = memory.Sample{Peak: 8, Far: 2, FarPeak: 2, FarPlanned: 3}
	log.Sample(&s)
	records, _ = read(out.String())
	require.Len(t, records, 2)
	require.EqualValues(t, 8, records[1].Peak)
	require.EqualValues(t, 500, records[1].FarPeak)
	require.EqualValues(t, 600, records[1].FarPlanned)
	require.EqualValues(t, 2, records[1].Far)
}

// If there are several replicas, the key replica follows the rank, even for replica 0.
func TestReplica(t *testing.T) {
	var out bytes.Buffer
	s := full()
	for _, s.Replica = range []int{0, 3} {
		out.Reset()
		s.Replicated = true
		memlog.New(&out).Sample(&s)
		require.Equal(t, strings.Replace(fullLine, `"microbatch"`, fmt.Sprintf(`"replica":%d,"microbatch"`, s.Replica), 1), out.String())
		records, faults := read(out.String())
		require.Empty(t, faults)
		require.Equal(t, []memlog.Record{{Schema: 1, Sample: s}}, records)
	}
}

func TestSampleMakesOneWrite(t *testing.T) {
	w := &shortWriter{room: math.MaxInt}
	log, s := memlog.New(w), full()
	log.Sample(&s)
	log.Sample(&s)
	require.Equal(t, 2, w.calls)
}

func TestNewWithoutWriter(t *testing.T) {
	log, s := memlog.New(nil), full()
	log.Sample(&s)
	require.NoError(t, log.Err())
}

// A record allocates nothing (L11).
func TestSampleAllocatesNothing(t *testing.T) {
	log, s := memlog.New(io.Discard), full()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties zerolog's pool
	require.Zero(t, testing.AllocsPerRun(1000, func() { log.Sample(&s) }))
}

// Classes without bytes are omitted. Lines that contain them, as earlier versions wrote, are
// read as the same record.
func TestClassesWithoutBytes(t *testing.T) {
	s := full()
	s.Classes = memory.ByClass{memory.Saved: 7}
	var out bytes.Buffer
	memlog.New(&out).Sample(&s)
	require.True(t, strings.HasSuffix(out.String(), `"classes":{"saved":7}}`+"\n"), out.String())
	earlier := strings.Replace(out.String(), `{"saved":7}`, `{"resident":0,"entry":0,"activation":0,"actgrad":0,"saved":7,"carry":0,"transfer":0,"workspace":0,"loss":0,"fp8":0,"unsharded":0}`, 1)
	records, faults := read(out.String() + earlier)
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{{Schema: 1, Sample: s}, {Schema: 1, Sample: s}}, records)
}

// One of n records of a rank is written, and also the first of a step, and every one that shows
// growth. No peak is lost.
func TestEvery(t *testing.T) {
	var out bytes.Buffer
	log := memlog.New(&out)
	log.Every(4)
	for i := range 20 {
		for rank := range 2 {
			s := full()
			s.Step, s.Rank, s.Microbatch, s.Peak, s.Excess, s.Growth = int64(i/10), rank, i%10, 100, 0, 0
			if i == 6 {
				s.Peak, s.PeakClasses = 999, memory.ByClass{memory.Workspace: 999}
			}
			if i == 13 && rank == 1 {
				s.Excess = 64
			}
			log.Sample(&s)
		}
	}
	require.NoError(t, log.Err())
	records, faults := read(out.String())
	require.Empty(t, faults)
	var kept [2][]int
	for _, r := range records {
		require.Equal(t, 4, r.Every)
		kept[r.Rank] = append(kept[r.Rank], int(r.Step)*10+r.Microbatch)
		if r.Step == 0 && r.Microbatch == 8 {
			require.EqualValues(t, 999, r.Peak)
			require.EqualValues(t, 999, r.PeakClasses[memory.Workspace])
		} else {
			require.EqualValues(t, 100, r.Peak)
		}
	}
	require.Equal(t, [2][]int{{0, 4, 8, 10, 14, 18}, {0, 4, 8, 10, 13, 14, 18}}, kept)
	log, s := memlog.New(io.Discard), full()
	log.Every(2)
	log.Sample(&s)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	require.Zero(t, testing.AllocsPerRun(1000, func() { log.Sample(&s) }))
}

// The ranks of a process share a log: the race detector reports unsynchronized use.
func TestRanksShareALog(t *testing.T) {
	var out bytes.Buffer
	log := memlog.New(&out)
	log.Every(2)
	var ranks sync.WaitGroup
	for rank := range 4 {
		ranks.Go(func() {
			for mb := range 100 {
				s := full()
				s.Rank, s.Microbatch, s.Excess, s.Growth = rank, mb, 0, 0
				log.Sample(&s)
			}
		})
	}
	ranks.Wait()
	require.NoError(t, log.Err())
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Len(t, records, 200)
}

// A file of limited size is renamed when it is full, between two lines, and appended to when it
// is opened again. The files that are kept are the end of the log.
func TestFileRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	write := func(from, to int) {
		file := &memlog.File{Path: path, Most: int64(3 * len(fullLine)), Keep: 2}
		log := memlog.New(file)
		for mb := from; mb < to; mb++ {
			s := full()
			s.Microbatch = mb
			log.Sample(&s)
		}
		require.NoError(t, log.Err())
		require.NoError(t, file.Close())
	}
	write(0, 5)
	write(5, 10)
	var all []int
	for _, name := range []string{path + ".2", path + ".1", path} {
		text := []byte(testkit.Read(t, name))
		require.LessOrEqual(t, len(text), 3*len(fullLine))
		records, faults := read(string(text))
		require.Empty(t, faults)
		for _, r := range records {
			all = append(all, r.Microbatch)
		}
	}
	require.Equal(t, []int{3, 4, 5, 6, 7, 8, 9}, all)
	require.NoFileExists(t, path+".3")

	bare := &memlog.File{Path: path, Most: 1}
	for range 2 {
		_, err := bare.Write([]byte("line\n"))
		require.NoError(t, err)
	}
	require.NoError(t, bare.Close())
	text := testkit.Read(t, path)
	require.Equal(t, "line\n", text, "no earlier file is kept")
	_, err := (&memlog.File{Path: filepath.Join(path, "none")}).Write(nil)
	require.Error(t, err)
}

// shortWriter is a disk that is full after some bytes.
type shortWriter struct {
	room, calls int
}

var errFull = errors.New("disk full")

func (w *shortWriter) Write(p []byte) (int, error) {
	w.calls++
	if w.room < len(p) {
		return w.room, errFull
	}
	w.room -= len(p)
	return len(p), nil
}

// silentWriter writes less than it is given and returns no error.
type silentWriter struct{}

func (silentWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

func TestErrIsTheFirstOfTheWriter(t *testing.T) {
	w := &shortWriter{room: len(fullLine) + 10}
	log, s := memlog.New(w), full()
	log.Sample(&s)
	require.NoError(t, log.Err())
	log.Sample(&s)
	require.ErrorIs(t, log.Err(), errFull)
	log.Sample(&s)
	require.Equal(t, 2, w.calls, "nothing is written behind a broken line")

	log = memlog.New(silentWriter{})
	log.Sample(&s)
	require.ErrorIs(t, log.Err(), io.ErrShortWrite)
}

// read returns the records and the texts of the errors.
func read(text string) (records []memlog.Record, faults []string) {
	for r, err := range memlog.Read(strings.NewReader(text)) {
		if err != nil {
			faults = append(faults, err.Error())
		} else {
			records = append(records, r)
		}
	}
	return records, faults
}

func TestReadReturnsWhatSampleWrote(t *testing.T) {
	want := full()
	for _, weight := range []float64{0, 0.1, 1e-300, math.MaxFloat64, math.Inf(1), math.Inf(-1)} {
		want.Weight = weight
		var out bytes.Buffer
		memlog.New(&out).Sample(&want)
		records, faults := read(out.String())
		require.Empty(t, faults)
		require.Equal(t, []memlog.Record{{Schema: 1, Sample: want}}, records)
	}
	want.Weight = math.NaN()
	var out bytes.Buffer
	memlog.New(&out).Sample(&want)
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.True(t, math.IsNaN(records[0].Weight))
}

func TestReadPlanned(t *testing.T) {
	line := strings.Replace(fullLine, `"live":6,`, `"live":6,"live_planned":60,`, 1)
	_, faults := read(line)
	require.Equal(t, []string{"memlog: not a line of a memory log: 1:1: expected schema 1 with all its fields, found none of these: peak_planned"}, faults)

	line = strings.Replace(line, `"peak":7,`, `"peak":7,"peak_planned":70,`, 1)
	records, faults := read(line)
	require.Empty(t, faults)
	planned := full()
	planned.Planned, planned.LivePlanned, planned.PeakPlanned = true, 60, 70
	require.Equal(t, []memlog.Record{{Schema: 1, Sample: planned}}, records)

	var out bytes.Buffer
	memlog.New(&out).Sample(&planned)
	require.Equal(t, line, out.String())
}

func TestReadMinimal(t *testing.T) {
	records, faults := read(`
  {"step": 1, "rank": 0, "microbatch": 7, "allocated": 100, "reserved": 300, "peak": 200}` + "\r\n\n" +
		// A trainer may have keys of its own, even some that have a meaning here.
		`{"peak":2,"time":"noon","loss":[1,{"a":"}"}],"classes":null,"reserved":3,"allocated":1,"microbatch":8,"rank":1,"step":1}`)
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{
		{Sample: memory.Sample{Step: 1, Microbatch: 7, Live: 100, Reserved: 300, Peak: 200}},
		{Sample: memory.Sample{Step: 1, Rank: 1, Microbatch: 8, Live: 1, Reserved: 3, Peak: 2}},
	}, records)
}

func TestReadFaults(t *testing.T) {
	const minimal = `{"step":1,"rank":0,"microbatch":7,"allocated":100,"reserved":300,"peak":200}`
	edit := func(old, new string) string { return strings.Replace(minimal, old, new, 1) }
	editFull := func(old, new string) string {
		return strings.Replace(strings.TrimSpace(fullLine), old, new, 1)
	}
	for _, test := range []struct{ name, line, at, want string }{
		{"no json", `step 1 rank 0`, "step", "expected an object, found step"},
		{"a word", `epoch=1`, "epoch", "expected an object, found epoch=1"},
		{"no object", ` [1]`, "[", "expected an object, found [1]"},
		{"torn in a key", edit(`obatch":7,"allocated":100,"reserved":300,"peak":200}`, ""), "", "found the end of the text, expected more of the record"},
		{"torn in a value", edit(`tch":7,"allocated":100,"reserved":300,"peak":200}`, `":"7`), "", "found the end of the text, expected more of the record"},
		{"torn before the brace", edit("}", ""), "", "found the end of the text, expected more of the record"},
		{"torn after the brace", "{", "", "found the end of the text, expected more of the record"},
		{"two objects", minimal + ` {"a":1}`, `{"a"`, `found something behind the record, expected the end of the text`},
		{"no comma", edit(`0,"microbatch"`, `0 "microbatch"`), `"micro`, `found "\"microbatch\"", expected a comma or }`},
		{"no value", edit(`"rank":0`, `"rank": `), `,"micro`, `found ",", expected a value`},
		{"no key", edit(`"rank":0`, `3:0`), `3:0`, `found "3", expected the name of a field, in quotes`},
		{"string", edit(`"rank":0`, `"rank" : "0"`), `"0"`, `expected rank, an integer from 0 to ` + strconv.Itoa(math.MaxInt) + `, found "0"`},
		{"control characters", edit(`"microbatch"`, "\"micro\x1b[2J\u009b1A\xff"), "\x1b", `found "\x1b[2J\u009b1A\xff", expected the rest of a valid value`},
		{"no text", "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 50) + "\xff", "\x7f", `expected an object, found "\x7fELF\x02\x01\x01` + strings.Repeat(`\x00`, 17) + `"...`},
		{"cut within a character", edit(`100`, `"`+strings.Repeat("1", 38)+`é1"`), `"1111`, `expected allocated, an integer from 0 to 9223372036854775807, found "` + strings.Repeat("1", 38) + "..."},
		{"null", edit(`100`, `null`), "null", "expected allocated, an integer from 0 to 9223372036854775807, found null"},
		{"negative", edit(`100`, `-1`), "-1", "expected allocated, an integer from 0 to 9223372036854775807, found -1"},
		{"fraction", edit(`100`, `1.5`), "1.5", "expected allocated, an integer from 0 to 9223372036854775807, found 1.5"},
		{"too large", edit(`100`, `9223372036854775808`), "92", "expected allocated, an integer from 0 to 9223372036854775807, found 9223372036854775808"},
		{"long value", edit(`100`, strings.Repeat("1", 50)), "1111", "expected allocated, an integer from 0 to 9223372036854775807, found " + strings.Repeat("1", 40) + "..."},
		{"missing", edit(`"rank":0,`, ``), "{", "expected the minimal form (no schema) with all its fields, found none of these: rank"},
		{"all missing", `{}`, "{", "expected the minimal form (no schema) with all its fields, found none of these: step rank microbatch allocated reserved peak"},
		{"twice", edit(`"rank":0`, `"rank":0,"rank":5`), `"rank":5`, `found "rank", which is there already: give it once`},
		{"other schema", editFull(`"schema":1`, `"schema":2`), "2,", "expected schema 1, found 2: read it with the version of Weir that wrote it, or write it again with this one"},
		{"schema and no more", `{"schema":1}`, "{", "expected schema 1 with all its fields, found none of these: time step rank microbatch stage action live peak reserved excess growth weight wait_data classes"},
		{"action", editFull(`"B"`, `33`), "33", "expected action, a string, found 33"},
		{"weight", editFull(`11.5`, `"11.5"`), `"11.5"`, `expected weight, a number, found "11.5"`},
		{"excess", editFull(`-9`, `"-9"`), `"-9"`, `expected excess, an integer of 64 bits, found "-9"`},
		{"classes", editFull(`"classes":{`, `"classes":[],"x":{`), "[]", "expected an object, found []"},
		{"class unknown", editFull(`"entry":101`, `"entries":101`), `101`, `expected bytes of a class, found class "entries"`},
		{"class negative", editFull(`"entry":101`, `"entry":-1`), `-1,"activation`, `expected entry, an integer from 0 to 9223372036854775807, found -1`},
		{"owner", `{"schema":1,"owner":3}`, "3", "expected an object, found 3"},
		{"owner twice", `{"schema":1,"owner":{},"owner":[]}`, `"owner":[]`, `found "owner", which is there already: give it once`},
		{"owner's class", `{"schema":1,"owner":{"class":"x","bytes":1,"plain":1,"held":0,"serial":0}}`, `"x"`, `expected the name of a class, found "x"`},
		{"owner incomplete", `{"schema":1,"owner": {"class":"loss"}}`, `{"class`, "expected an owner with all its fields, found none of these: bytes plain held serial"},
	} {
		t.Run(test.name, func(t *testing.T) {
			column := len(test.line) + 1
			if test.at != "" {
				column = strings.Index(test.line, test.at) + 1
			}
			records, faults := read(minimal + "\n\n" + test.line + "\n" + minimal)
			require.Equal(t, []string{fmt.Sprintf("memlog: not a line of a memory log: 3:%d: %s", column, test.want)}, faults)
			require.Len(t, records, 2, "the lines around it are read")
		})
	}
}

// An editor's byte order mark is ignored on the first line, and is a fault on any other.
func TestReadByteOrderMark(t *testing.T) {
	const mark, minimal = "\ufeff", `{"step":1,"rank":0,"microbatch":7,"allocated":100,"reserved":300,"peak":200}` + "\n"
	records, faults := read(mark + minimal + mark + minimal)
	require.Len(t, records, 1)
	require.Equal(t, []string{`memlog: not a line of a memory log: 2:1: expected an object, found "\ufeff"`}, faults)
}

// A last line that stops in the middle is distinguished from an invalid one.
func TestReadTorn(t *testing.T) {
	const minimal = `{"step":1,"rank":0,"microbatch":7,"allocated":100,"reserved":300,"peak":200}`
	for text, torn := range map[string]bool{
		minimal[:1]: true, minimal[:20]: true, minimal[:len(minimal)-1]: true,
		minimal[:20] + "\n": false, `[1]`: false, `{}`: false, minimal + "x": false,
	} {
		for _, err := range memlog.Read(strings.NewReader(minimal + "\n" + text)) {
			if err != nil {
				require.ErrorIs(t, err, memlog.ErrFormat)
				require.Equal(t, torn, errors.Is(err, memlog.ErrTorn), "%q", text)
			}
		}
	}
}

func TestReadCapsLines(t *testing.T) {
	const minimal = `{"step":1,"rank":0,"microbatch":7,"allocated":100,"reserved":300,"peak":200}`
	const limit = 1 << 20
	pad := strings.Repeat(" ", limit-len(minimal))
	records, faults := read(minimal + pad + "\n" + minimal + pad + " \n" + minimal + "\n" + minimal + pad + " ")
	require.Equal(t, []string{
		"memlog: not a line of a memory log: 2:1048577: expected the end of the line, which may have 1048576 bytes",
		"memlog: not a line of a memory log: 4:1048577: expected the end of the line, which may have 1048576 bytes",
	}, faults)
	require.Len(t, records, 2)
}

// brokenReader returns one line and then an error.
type brokenReader struct{ text string }

func (r *brokenReader) Read(p []byte) (int, error) {
	n := copy(p, r.text)
	if r.text = r.text[n:]; n == 0 {
		return 0, errFull
	}
	return n, nil
}

func TestReadReturnsTheErrorOfTheReader(t *testing.T) {
	var records int
	var last error
	for _, err := range memlog.Read(&brokenReader{fullLine + "{"}) {
		if last = err; err == nil {
			records++
		}
	}
	require.Equal(t, 1, records)
	require.ErrorIs(t, last, errFull)
	require.NotErrorIs(t, last, memlog.ErrFormat)
	require.EqualError(t, last, "memlog: line 2: disk full")
}

func TestReadStopsWhereTheLoopStops(t *testing.T) {
	for text := range slices.Values([]string{fullLine + fullLine, "x\nx\n", strings.Repeat(" ", 2<<20) + "\n" + fullLine}) {
		n := 0
		for range memlog.Read(strings.NewReader(text)) {
			n++
			break
		}
		require.Equal(t, 1, n)
	}
}

func TestDump(t *testing.T) {
	ring := memory.NewRing(2)
	for mb := range 3 {
		s := full()
		s.Microbatch = mb
		ring.Put(&s)
	}
	owners := []memory.Info{
		{Name: `rank 0 "stage" 1`, Class: memory.Saved, Bytes: 4096, Held: 1, Serial: 17},
		{Class: memory.Loss, Bytes: 8, Plain: 2, Serial: math.MaxUint64},
	}
	var out bytes.Buffer
	require.NoError(t, memlog.Dump(&out, ring, slices.Values(owners)))
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 5)
	require.Equal(t, `{"schema":1,"owner":{"name":"rank 0 \"stage\" 1","class":"saved","bytes":4096,"plain":0,"held":1,"serial":17}}`, lines[2])

	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, []int{1, 2}, []int{records[0].Microbatch, records[1].Microbatch})
	require.Equal(t, []memlog.Record{{Schema: 1, Owner: &owners[0]}, {Schema: 1, Owner: &owners[1]}}, records[2:])

	require.ErrorIs(t, memlog.Dump(&shortWriter{}, ring, nil), errFull)
	require.NoError(t, memlog.Dump(io.Discard, nil, nil))
}

// The owners at the planned peak are one line each, and are read as they were written.
func TestPeakOwner(t *testing.T) {
	owners := []memory.PeakOwner{
		{Step: 7, Rank: 2, Name: `saved of "F"`, Class: memory.Saved, Bytes: 4096, Buffers: 4, First: 0, Last: 3},
		{Step: 7, Rank: 2, Class: memory.Unsharded, Bytes: 8, Buffers: 1, First: -1, Last: -1},
	}
	var out bytes.Buffer
	log := memlog.New(&out)
	for i := range owners {
		log.PeakOwner(&owners[i])
	}
	require.NoError(t, log.Err())
	require.Equal(t, `{"schema":1,"peak_owner":{"step":7,"rank":2,"name":"saved of \"F\"","class":"saved","bytes":4096,"buffers":4,"first":0,"last":3}}
{"schema":1,"peak_owner":{"step":7,"rank":2,"name":"","class":"unsharded","bytes":8,"buffers":1}}
`, out.String())
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{{Schema: 1, PeakOwner: &owners[0]}, {Schema: 1, PeakOwner: &owners[1]}}, records)
	require.False(t, records[0].Sampled())

	_, faults = read(`{"schema":1,"peak_owner":{"step":7,"rank":2,"name":"x","class":"saved","bytes":1,"buffers":1,"first":3}}
{"schema":1,"peak_owner":{"step":7,"rank":-2,"name":"x","class":"saved","bytes":1,"buffers":1}}
{"schema":1,"peak_owner":7}
`)
	require.Equal(t, []string{
		"memlog: not a line of a memory log: 1:26: expected an owner at the peak with all its fields, found none of these: last",
		"memlog: not a line of a memory log: 2:43: expected rank, an integer from 0 to " + strconv.Itoa(math.MaxInt) + ", found -2",
		"memlog: not a line of a memory log: 3:26: expected an object, found 7",
	}, faults)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(fullLine))
	f.Add([]byte(`{"step":1,"rank":0,"microbatch":7,"allocated":100,"reserved":300,"peak":200}` + "\n\n{}"))
	f.Add([]byte(`{"schema":1,"owner":{"name":"x","class":"loss","bytes":1,"plain":1,"held":0,"serial":0}}`))
	f.Add([]byte(`{"schema":1,"peak_owner":{"step":1,"rank":0,"name":"x","class":"loss","bytes":1,"buffers":1,"first":0,"last":9}}`))
	f.Add([]byte(`{"schema":1,"fp8":{"step":7,"role":"input","tensors":8,"frozen":1,"non_finite":2,"saturated":3,"underflowed":4,"least_scale":0.5,"greatest_scale":"+Inf"}}`))
	f.Add([]byte(strings.Replace(fullLine, `"live":6,"peak":7`, `"live":6,"live_planned":1,"peak":7,"peak_planned":2`, 1)))
	f.Add([]byte(`{"weight":"NaN","schema":1,"a":{"b":[1,2,"\u0000"]},`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for r, err := range memlog.Read(bytes.NewReader(text)) {
			if err != nil {
				require.ErrorIs(t, err, memlog.ErrFormat)
				require.Equal(t, memlog.Record{}, r)
				continue
			}
			// Records that were read can be written, and are then read as the same records.
			var again bytes.Buffer
			want := memlog.Record{Schema: 1, Sample: r.Sample, Owner: r.Owner, PeakOwner: r.PeakOwner, FP8: r.FP8}
			switch {
			case r.Owner != nil:
				require.NoError(t, memlog.Dump(&again, nil, slices.Values([]memory.Info{*r.Owner})))
			case r.PeakOwner != nil:
				memlog.New(&again).PeakOwner(r.PeakOwner)
			case r.FP8 != nil:
				for _, scale := range []*float64{&r.FP8.LeastScale, &r.FP8.GreatestScale} {
					if math.IsNaN(*scale) {
						*scale = 0
					}
				}
				memlog.New(&again).FP8(r.FP8)
			default:
				if math.IsNaN(r.Weight) {
					r.Weight = 0
				}
				want.Sample = r.Sample
				memlog.New(&again).Sample(&r.Sample)
			}
			records, faults := read(again.String())
			require.Empty(t, faults)
			require.Equal(t, []memlog.Record{want}, records)
		}
	})
}

// TestFixtures compares a log that has every kind of line with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "memory-%d.jsonl", Mark: "{\"schema\":%d,\"time\"", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			var text bytes.Buffer
			log, s := memlog.New(&text), full()
			log.Sample(&s)
			s.Replica, s.Replicated, s.Planned, s.LivePlanned, s.PeakPlanned, s.FarPeak, s.FarPlanned, s.PeakClasses = 1, true, true, 13, 14, 15, 16, s.Classes
			s.Leak = memory.Leak{Stage: 3, Name: "block", Call: "I", Class: memory.Carry}
			log.Sample(&s)
			log.PeakOwner(&memory.PeakOwner{Step: 7, Rank: 2, Name: "saved", Class: memory.Saved, Bytes: 4096, Buffers: 4, Last: 3})
			log.FP8(&memlog.FP8{Step: 7, Role: "input", Tensors: 8, Frozen: 1, NonFinite: 2, Saturated: 3, Underflowed: 4, LeastScale: 0.5, GreatestScale: 448})
			require.NoError(t, memlog.Dump(&text, nil, slices.Values([]memory.Info{{Name: "stage", Class: memory.Saved, Bytes: 4096, Plain: 2, Held: 1, Serial: 17}})))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			for _, err := range memlog.Read(bytes.NewReader(text)) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}.Test(t)
}

// The statistics of tensors in low precision are one line for each role, and are read as they
// were written.
func TestFP8(t *testing.T) {
	roles := []memlog.FP8{
		{Step: 7, Role: "input", Tensors: 8, Frozen: 1, NonFinite: 2, Saturated: 1 << 63, Underflowed: 4, LeastScale: 0.5, GreatestScale: 448},
		{Step: 7, Role: "weight"},
	}
	var out bytes.Buffer
	log := memlog.New(&out)
	for i := range roles {
		log.FP8(&roles[i])
	}
	require.NoError(t, log.Err())
	require.Equal(t, `{"schema":1,"fp8":{"step":7,"role":"input","tensors":8,"frozen":1,"non_finite":2,"saturated":9223372036854775808,"underflowed":4,"least_scale":0.5,"greatest_scale":448}}
{"schema":1,"fp8":{"step":7,"role":"weight","tensors":0,"frozen":0,"non_finite":0,"saturated":0,"underflowed":0,"least_scale":0,"greatest_scale":0}}
`, out.String())
	records, faults := read(out.String())
	require.Empty(t, faults)
	require.Equal(t, []memlog.Record{{Schema: 1, FP8: &roles[0]}, {Schema: 1, FP8: &roles[1]}}, records)
	require.False(t, records[0].Sampled())

	_, faults = read(`{"schema":1,"fp8":{"step":7,"role":"input"}}
{"schema":1,"fp8":{"step":7,"role":"x","tensors":0,"frozen":0,"non_finite":-1,"saturated":0,"underflowed":0,"least_scale":0,"greatest_scale":0}}
`)
	require.Equal(t, []string{
		"memlog: not a line of a memory log: 1:19: expected a role in FP8 with all its fields, found none of these: tensors frozen non_finite saturated underflowed least_scale greatest_scale",
		"memlog: not a line of a memory log: 2:76: expected non_finite, an integer from 0 to 18446744073709551615, found -1",
	}, faults)
}
