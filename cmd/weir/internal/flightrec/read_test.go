package flightrec_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// The same dump of one collective and two transfers of a rank of the groups default_pg and PIPELINE, in
// JSON and pickled by Python, and pickled without completed operations.
var (
	//go:embed testdata/dump.json
	inJSON []byte
	//go:embed testdata/dump.pickle
	pickled []byte
	//go:embed testdata/pending.pickle
	pending []byte
)

// wanted lists the entries of this dump.
var wanted = []flightrec.Operation{
	{Record: 0, Number: 1, Peer: -1, Completed: true, Call: &flightrec.Call{Name: "all_reduce", Sizes: "16", Type: "Float"}},
	{Record: 1, Number: 1, Group: 1, Peer: 12, Completed: true, Call: &flightrec.Call{Name: "send", Sizes: "4096x1x5120", Type: "BFloat16", Kind: flightrec.Send}},
	{Record: 2, Number: 2, Group: 1, Peer: 8, Call: &flightrec.Call{Name: "recv", Sizes: "4096x1x5120", Type: "BFloat16", Kind: flightrec.Recv}},
}

func packed(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func archived(t *testing.T, files map[string][]byte) []byte {
	var out bytes.Buffer
	a := tar.NewWriter(&out)
	for name, b := range files {
		require.NoError(t, a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(b)), Mode: 0o600}))
		_, err := a.Write(b)
		require.NoError(t, err)
	}
	require.NoError(t, a.Close())
	return out.Bytes()
}

// TestForms reads the same dump in every form, alone, in a folder, by a pattern and in an archive.
func TestForms(t *testing.T) {
	all := archived(t, map[string][]byte{"run/_dump_4": pickled, "run/fault_injection.log": []byte("Fault ranks: [12]"), "run/_dump_5": inJSON})
	for name, b := range map[string][]byte{
		"_dump_4": pickled, "nccl_trace_rank_4": pickled, "rank4.json": inJSON, "dump_4.pickle.gz": packed(t, pickled), "all.tar": all, "all.tar.gz": packed(t, all),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, name)
			require.NoError(t, os.WriteFile(path, b, 0o600))
			names := []string{path, filepath.Join(folder, "*")}
			if !strings.HasPrefix(name, "all") {
				names = append(names, folder)
			}
			for _, name := range names {
				set, err := flightrec.Read(name)
				require.NoError(t, err)
				require.Empty(t, set.Broken)
				d := set.Dumps[0]
				require.Equal(t, 4, d.Rank)
				require.Equal(t, wanted, d.Operations)
				require.Equal(t, flightrec.Group{Name: "43", Description: "PIPELINE", Ranks: []int{0, 4, 8, 12}, Local: 1, Status: flightrec.Status{Enqueued: 2, Completed: 1}}, d.Groups[1])
			}
		})
	}
}

// TestPending reads a dump without history, in which a group that has a status may have no entries.
func TestPending(t *testing.T) {
	var s flightrec.Set
	require.NoError(t, s.Add("dump_4", bytes.NewReader(pending)))
	require.Equal(t, wanted[2:], s.Dumps[0].Operations)
	require.Equal(t, map[int64]flightrec.Status{0: {Enqueued: 1, Completed: 1}}, s.Dumps[0].Unjoined)
}

// TestSpellings reads the forms of other versions: batches, texts for numbers, names with other prefixes, peers
// counted from the end, and groups without a pg_config.
func TestSpellings(t *testing.T) {
	const dump = `{"version": "2.4", "pg_config": {"7": {"name": "7", "desc": "", "ranks": "[2, 3, 5]"}}, "pg_status": {"1": {"last_enqueued_collective": "9", "last_completed_collective": "8"}},
		"entries": [
		{"record_id": 9, "pg_id": 1, "process_group": ["7", "x"], "collective_seq_id": 1, "p2p_seq_id": 4, "profiling_name": "nccl:coalesced", "state": "completed", "is_p2p": true},
		{"record_id": 7, "pg_id": 1, "process_group": ["7", "x"], "collective_seq_id": 1, "p2p_seq_id": 4, "op_id": 8, "profiling_name": "nccl:recv 0<--1", "state": "scheduled", "is_p2p": true},
		{"record_id": 8, "pg_id": 1, "process_group": ["7", "x"], "collective_seq_id": 1, "p2p_seq_id": 4, "op_id": 9, "profiling_name": "xccl:send 0->1", "state": "scheduled", "is_p2p": true},
		{"record_id": 10, "pg_id": 2, "process_group": "\u006fther", "seq_id": 5, "profiling_name": "nccl:_all_gather_base", "state": "started", "input_sizes": [[2, 3], []], "input_dtypes": ["Float", "Long"], "duration_ms": 1.5e0}
	]}`
	var s flightrec.Set
	require.NoError(t, s.Add("dump_2.json", strings.NewReader(dump)))
	d := s.Dumps[0]
	require.Equal(t, []flightrec.Operation{
		{Record: 7, Number: 7, Peer: 5, Batch: 1, Completed: true, Call: &flightrec.Call{Name: "recv", Kind: flightrec.Recv}},
		{Record: 8, Number: 8, Peer: 3, Batch: 1, Completed: true, Call: &flightrec.Call{Name: "send", Kind: flightrec.Send}},
		{Record: 10, Number: 5, Group: 1, Peer: -1, Call: &flightrec.Call{Name: "_all_gather_base", Sizes: "2x3, ", Type: "Float,Long"}},
	}, d.Operations)
	require.Equal(t, flightrec.Status{Enqueued: 9, Completed: 8}, d.Groups[0].Status)
	require.Equal(t, "x", d.Groups[0].Description)
	require.Equal(t, "other", d.Groups[1].Name)
}

// TestStates reads retired operations in the states that the backends of PyTorch 2.15 record (ProcessGroupGloo.cpp,
// ProcessGroupNCCL.cpp, FlightRecorderHook.cpp). What a state means depends on the backend.
func TestStates(t *testing.T) {
	for name, want := range map[string]struct {
		state             string
		completed, unseen bool
		backend           string
	}{
		"gloo:all_reduce":  {"scheduled", true, true, ""},      // ended or failed
		"nccl:all_reduce":  {"scheduled", false, false, ""},    // timed out
		"mpi:all_reduce":   {"scheduled", true, true, "mpi"},   // issued
		"nccl2:all_reduce": {"completed", true, false, ""},     // ended
		"nccl2:send 0->1":  {"completed", true, true, "nccl2"}, // may be issued in a batch
		"nccl:send 0->1":   {"completed", true, false, ""},
	} {
		var s flightrec.Set
		require.NoError(t, s.Add("dump_0.json", strings.NewReader(`{"entries": [{"process_group": ["0", "x"], "collective_seq_id": 1, "p2p_seq_id": 1, "profiling_name": "`+name+`", "state": "`+want.state+`", "retired": true}]}`)))
		e := s.Dumps[0].Operations[0]
		require.Equal(t, want.completed, e.Completed, name)
		require.Equal(t, want.unseen, e.Unseen, name)
		require.Equal(t, want.backend, s.Dumps[0].Backend, name)
	}
}

// TestReceives reads a receive of FlightRecorderHook, whose size is that of its output, and one from any rank. The
// status in its dumps is an op_id, counted from 0.
func TestReceives(t *testing.T) {
	const dump = `{"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "pg_status": {"0": {"last_enqueued_collective": 1, "last_completed_collective": -1}},
		"entries": [
		{"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 0, "p2p_seq_id": 1, "op_id": 0, "profiling_name": "nccl2:recv 1<-0", "state": "scheduled", "input_sizes": [], "input_dtypes": [], "output_sizes": [[4, 16]], "output_dtypes": ["Float"], "is_p2p": true},
		{"record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 0, "p2p_seq_id": 2, "op_id": 1, "profiling_name": "nccl2:recv 1<-?", "state": "scheduled", "input_sizes": [], "input_dtypes": [], "output_sizes": [[]], "output_dtypes": ["Long"], "is_p2p": true}
	]}`
	var s flightrec.Set
	require.NoError(t, s.Add("dump_1.json", strings.NewReader(dump)))
	d := s.Dumps[0]
	require.Equal(t, []flightrec.Operation{
		{Record: 0, Number: 1, Peer: 0, Call: &flightrec.Call{Name: "recv", Kind: flightrec.Recv, Sizes: "4x16", Type: "Float"}},
		{Record: 1, Number: 2, Peer: -1, Call: &flightrec.Call{Name: "recv", Kind: flightrec.Recv, Type: "Long"}},
	}, d.Operations)
	require.Equal(t, flightrec.Status{Enqueued: 2, Completed: 0}, d.Groups[0].Status)
}

// TestFolders reads the dumps in a folder for each node. A file belongs to no rank if its name differs from
// those of the dumps.
func TestFolders(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, b []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), b, 0o600))
	}
	write("node0/dump_0", pickled)
	write("node1/dump_1.json", inJSON)
	write("node1/dump_2", nil)
	write("core.17", []byte("\x7fELF"))
	write("node1/slurm-48213", []byte("slurmstepd: error"))
	set, err := flightrec.Read(folder)
	require.NoError(t, err)
	require.Len(t, set.Dumps, 2)
	ranks := map[string]int{}
	for _, b := range set.Broken {
		ranks[filepath.Base(b.File)] = b.Rank
	}
	require.Equal(t, map[string]int{"dump_2": 2, "core.17": -1, "slurm-48213": -1}, ranks)
}

// TestRanks refuses dumps without a rank, and two dumps of one rank.
func TestRanks(t *testing.T) {
	var s flightrec.Set
	require.ErrorContains(t, s.Add("dump", strings.NewReader(`{"entries": []}`)), "its name ends in no rank")

	folder := t.TempDir()
	for _, name := range []string{"a_1", "b_1", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), inJSON, 0o600))
	}
	set, err := flightrec.Read(folder)
	require.ErrorContains(t, err, "rank 1 has two dumps")
	require.Equal(t, []string{filepath.Join(folder, "notes.txt")}, set.Skipped)
	_, err = flightrec.Read(filepath.Join(folder, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestBroken reads files that are no dumps. They are reported by name, and the other files are read.
func TestBroken(t *testing.T) {
	whole := pickled
	bomb := packed(t, append([]byte("\x80\x02"), bytes.Repeat([]byte("\x95\x00\x00\x00\x00\x00\x00\x00\x00"), 3<<20)...))
	for name, c := range map[string]struct{ file, want string }{
		"empty":           {"", "the file is empty"},
		"cut":             {string(whole[:len(whole)/2]), "the file ends"},
		"code":            {"\x80\x02cos\nsystem\n.", "opcode GLOBAL would run code; a flight recorder dump has none"},
		"another pickle":  {"\x80\x02}.", "no entries and no pg_config"},
		"a list":          {"\x80\x02].", "it holds a list"},
		"entries of text": {`{"entries": ["x"]}`, "entry 0 is a text"},
		"another version": {`{"version": "1.5", "entries": []}`, `version "1.5"`},
		"cut json":        {`{"entries": [`, "the file ends where a value is expected"},
		"a comma":         {`{"entries": [1,]}`, "found ']', expected a value after the comma"},
		"no colon":        {`{"entries" []}`, "found '[', expected a colon"},
		"two values":      {`{"entries": []} 1`, "found '1', expected the end of the file"},
		"a word":          {`{"entries": nul}`, `found "nul", expected a value`},
		"gzip bomb":       {string(bomb), "unpacks to far more"},
		"depth":           {strings.Repeat(`{"a":[`, 600), "more than 1000 lists are open"},
		"an escape":       {`{"a\\\"\x": 1}`, "byte 2: a text with an escape or a control character that JSON does not allow"},
		"gzip in gzip":    {string(packed(t, packed(t, whole))), "begins with 0x1f"},
		"long text":       {`{"entries": "` + strings.Repeat("x", 1<<20+1) + `"}`, "a text of more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "d_0"), []byte(c.file), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "d_3"), whole, 0o600))
			set, err := flightrec.Read(folder)
			require.NoError(t, err)
			require.Len(t, set.Dumps, 1)
			require.Len(t, set.Broken, 1)
			require.Equal(t, 0, set.Broken[0].Rank)
			require.ErrorContains(t, set.Broken[0].Err, c.want)
		})
	}
}

// TestMemoryIsBounded reads small files that describe large data.
func TestMemoryIsBounded(t *testing.T) {
	testkit.Slow(t)
	lists := strings.Repeat("[],", 4<<20)
	one := "}q\x01X\x04\x00\x00\x00nameq\x02s"
	aliased := "\x80\x02}X\x07\x00\x00\x00entries](" + one + strings.Repeat("h\x01", 8<<20) + "es."
	for name, file := range map[string]string{"lists": `{"entries": [` + lists + `1]}`, "one entry": aliased} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var s flightrec.Set
		require.Error(t, s.Add("d_0", strings.NewReader(file)), name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30), name)
	}
}

func FuzzAdd(f *testing.F) {
	f.Add(pickled)
	f.Add(inJSON)
	f.Add([]byte(`{"version": "2.4", "pg_config": {"7": {"ranks": [1, 2]}}, "entries": [{"process_group": "7", "profiling_name": "nccl:recv 0<--9"}, {"profiling_name": "nccl:coalesced"}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		var s flightrec.Set
		if err := s.Add("dump_1", bytes.NewReader(file)); err != nil {
			return
		}
		for _, d := range s.Dumps {
			for _, e := range d.Operations {
				require.Less(t, int(e.Group), len(d.Groups))
			}
		}
	})
}

// TestTorn checks that an error of the disk is passed on.
func TestTorn(t *testing.T) {
	var s flightrec.Set
	require.ErrorIs(t, s.Add("d_1", io.MultiReader(bytes.NewReader(pickled[:300]), broken{})), io.ErrNoProgress)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrNoProgress }
