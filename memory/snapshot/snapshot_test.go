package snapshot_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/tests/rewind"
)

var (
	forward = []snapshot.Frame{{Name: "saved:qkv", Filename: "mb0/stage1/F", Line: 3}, {Name: "step", Filename: "train.py", Line: 9}}
	caller  = []snapshot.Frame{{Name: "init", Filename: "model.py", Line: 1}}
)

// small returns a snapshot with one of everything: a block allocated before the trace, one that
// stays, one that is pending, a segment that was returned, and ranges that grew.
func small() *snapshot.Snapshot {
	const a, b, c = 0x7f0000000000, 0x7f0000200000, 0x7f0100000000
	return &snapshot.Snapshot{
		Segments: []snapshot.Segment{
			{Address: a, Size: 2 << 20, Stream: 5, Small: true, Frames: caller, Blocks: []snapshot.Block{
				{Address: a, Size: 512, Requested: 100, State: snapshot.Live, Frames: caller},
				{Address: a + 512, Size: 1024, Requested: 1000, State: snapshot.Pending, Frames: forward},
				{Address: a + 1536, Size: 2<<20 - 1536, State: snapshot.Inactive},
			}},
			{Device: 1, Address: c, Size: 40 << 20, Pool: [2]int64{0, 7}, Expandable: true, Blocks: []snapshot.Block{
				{Address: c, Size: 30 << 20, Requested: 30 << 20, State: snapshot.Live},
				{Address: c + 30<<20, Size: 10 << 20, State: snapshot.Inactive},
			}},
		},
		Traces: [][]snapshot.TraceEntry{
			{
				{Action: snapshot.SegmentAlloc, Address: b, Size: 20 << 20, Stream: 5, Time: 1, Frames: caller},
				{Action: snapshot.Alloc, Address: b, Size: 5 << 20, Stream: 5, Time: 2, Frames: caller},
				{Action: snapshot.Alloc, Address: a + 512, Size: 1000, Stream: 5, Time: 3, Frames: forward},
				{Action: snapshot.FreeRequested, Address: a + 512, Size: 1000, Stream: 5, Time: 4},
				{Action: snapshot.FreeRequested, Address: b, Size: 5 << 20, Stream: 5, Time: 5},
				{Action: snapshot.FreeCompleted, Address: b, Size: 5 << 20, Stream: 5, Time: 6},
				{Action: snapshot.SegmentFree, Address: b, Size: 20 << 20, Stream: 5, Time: 7},
				{Action: snapshot.OutOfMemory, Address: 1 << 20, Size: 1 << 40, Time: 8},
			},
			{
				{Action: snapshot.SegmentMap, Address: c, Size: 20 << 20, Time: 1},
				{Action: snapshot.SegmentMap, Address: c + 20<<20, Size: 40 << 20, Time: 2},
				{Action: snapshot.Alloc, Address: c, Size: 30 << 20, Time: 3},
				{Action: snapshot.SegmentUnmap, Address: c + 40<<20, Size: 20 << 20, Time: 4},
				{Action: "user_defined", Time: 5},
			},
		},
		Settings: snapshot.Settings{Conf: "expandable_segments:True", Expandable: true, MaxSplit: 1 << 29},
	}
}

func written(t *testing.T, s *snapshot.Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, snapshot.Write(&file, s))
	return file.Bytes()
}

func TestRoundTrip(t *testing.T) {
	want := small()
	got, err := snapshot.Read(bytes.NewReader(written(t, want)), snapshot.Limits{})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, snapshot.Sizes{Allocated: 512, Active: 1536, Requested: 1100}, got.Segments[0].Sizes())
	require.Same(t, &got.Segments[0].Frames[0], &got.Traces[0][0].Frames[0], "a list of frames is one slice")
}

// TestViewersOpcodes requires that a file of many entries uses only opcodes of the viewer and
// lists of at most a thousand elements, and that shared texts and frames keep it small.
func TestViewersOpcodes(t *testing.T) {
	s := &snapshot.Snapshot{Traces: [][]snapshot.TraceEntry{nil}}
	for i := range 3001 {
		s.Traces[0] = append(s.Traces[0], snapshot.TraceEntry{Action: snapshot.Alloc, Address: 0x7f0000000000 + int64(i)*512, Size: 512, Frames: forward})
	}
	file := written(t, s)
	require.Equal(t, 3, bytes.Count(file, []byte("ue(")), "a list of 3,001 is written in four parts")
	require.Less(t, len(file), 3001*60)
	again, err := snapshot.Read(bytes.NewReader(file), snapshot.Limits{})
	require.NoError(t, err)
	require.Equal(t, s.Traces, again.Traces)
}

func TestRewind(t *testing.T) {
	s := small()
	before, err := rewind.Segments(s, 0)
	require.NoError(t, err)
	require.Len(t, before, 1)
	require.Equal(t, []snapshot.Block{
		{Address: 0x7f0000000000, Size: 512, Requested: 100, State: snapshot.Live, Frames: caller},
		{Address: 0x7f0000000200, Size: 2<<20 - 512, State: snapshot.Inactive},
	}, before[0].Blocks)
	before, err = rewind.Segments(s, 1)
	require.NoError(t, err)
	require.Empty(t, before)
	before, err = rewind.Segments(s, 2)
	require.NoError(t, err)
	require.Empty(t, before, "a device without anything")
}

// TestRewindSizes rewinds over a block from which 512 KiB were not split off, as the block
// allocated behind it shows.
func TestRewindSizes(t *testing.T) {
	const base, mib = 0x7f0000000000, 1 << 20
	s := &snapshot.Snapshot{
		Segments: []snapshot.Segment{{Address: base, Size: 20 * mib, Blocks: []snapshot.Block{
			{Address: base, Size: 5*mib + mib/2, State: snapshot.Inactive},
			{Address: base + 5*mib + mib/2, Size: 2 * mib, Requested: 2 * mib, State: snapshot.Live},
			{Address: base + 7*mib + mib/2, Size: 12*mib + mib/2, State: snapshot.Inactive},
		}}},
		Traces: [][]snapshot.TraceEntry{{
			{Action: snapshot.Alloc, Address: base + 5*mib + mib/2, Size: 2 * mib},
			{Action: snapshot.FreeRequested, Address: base, Size: 5 * mib},
			{Action: snapshot.FreeCompleted, Address: base, Size: 5 * mib},
		}},
	}
	before, err := rewind.Segments(s, 0)
	require.NoError(t, err)
	require.Equal(t, []snapshot.Block{
		{Address: base, Size: 5*mib + mib/2, Requested: 5 * mib, State: snapshot.Live},
		{Address: base + 5*mib + mib/2, Size: 14*mib + mib/2, State: snapshot.Inactive},
	}, before[0].Blocks)
}

func TestRewindFindsContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *snapshot.Snapshot)
		want   string
	}{
		"blocks that do not tile": {func(s *snapshot.Snapshot) { s.Segments[0].Blocks[1].Size = 512 }, "do not tile it"},
		"blocks that end early": {func(s *snapshot.Snapshot) {
			s.Segments[0].Blocks = s.Segments[0].Blocks[:2]
		}, "it ends at"},
		"another size":    {func(s *snapshot.Snapshot) { s.Traces[0][2].Size = 999 }, "entry 2, alloc of 999 bytes"},
		"freed twice":     {func(s *snapshot.Snapshot) { s.Traces[0][6] = s.Traces[0][5] }, "is in no segment"},
		"no request":      {func(s *snapshot.Snapshot) { s.Traces[0][4].Action = "note" }, "a block of 5242880 bytes is there, active_pending_free"},
		"never freed":     {func(s *snapshot.Snapshot) { s.Traces[0][5].Action = "note" }, "nothing is pending there"},
		"asked twice":     {func(s *snapshot.Snapshot) { s.Traces[0][7] = s.Traces[0][3] }, "entry 3, free_requested of 1000 bytes at 0x7f0000000200: nothing is pending there"},
		"segment in use":  {func(s *snapshot.Snapshot) { s.Traces[0][0], s.Traces[0][1] = s.Traces[0][1], s.Traces[0][0] }, "is live before it is there"},
		"half a segment":  {func(s *snapshot.Snapshot) { s.Traces[0][0].Size = 10 << 20 }, "the segment there has 20971520 bytes"},
		"segment twice":   {func(s *snapshot.Snapshot) { s.Traces[0][7] = s.Traces[0][6] }, "overlaps another one"},
		"over another":    {func(s *snapshot.Snapshot) { s.Traces[0][5].Address = 0x7f0000000032 }, "something else is live there"},
		"too long":        {func(s *snapshot.Snapshot) { s.Traces[0][5].Size = 21 << 20 }, "does not fit"},
		"negative":        {func(s *snapshot.Snapshot) { s.Traces[0][5].Size = -1 }, "negative"},
		"range not there": {func(s *snapshot.Snapshot) { s.Traces[1][1].Size = 60 << 20 }, "no segment has that range"},
	} {
		t.Run(name, func(t *testing.T) {
			s := small()
			c.change(s)
			_, err := rewind.Segments(s, 0)
			if err == nil {
				_, err = rewind.Segments(s, 1)
			}
			require.ErrorIs(t, err, rewind.ErrInconsistent)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// unwritable fails after some bytes.
type unwritable struct{ left int }

func (w *unwritable) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestWriteFails(t *testing.T) {
	require.ErrorIs(t, snapshot.Write(&unwritable{}, small()), io.ErrShortWrite)
}

func TestReadFails(t *testing.T) {
	torn := errors.New("the disk is gone")
	_, err := snapshot.Read(io.MultiReader(bytes.NewReader(written(t, small())[:100]), iotest.ErrReader(torn)), snapshot.Limits{})
	require.ErrorIs(t, err, torn)
	require.NotErrorIs(t, err, snapshot.ErrPickle)
}

// TestHostile reads invalid files.
func TestHostile(t *testing.T) {
	nested := strings.Repeat("]", 1000)
	const vast = "}(X\x0a\x00\x00\x00total_size\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fu"
	for name, c := range map[string]struct {
		file string
		want string
	}{
		"empty":             {"", "byte 0: the file ends before its STOP"},
		"text":              {"device: 3", "byte 0: no MARK is open"},
		"global":            {"\x80\x02cos\nsystem\n", "byte 2: opcode GLOBAL would run code"},
		"stack global":      {"\x80\x04\x8c\x02os\x8c\x06system\x93", "byte 14: opcode STACK_GLOBAL would run code"},
		"reduce":            {"\x80\x02)R.", "opcode REDUCE would run code"},
		"protocol 0":        {"(dp0\n.", "opcode 0x"},
		"another file":      {"{\"step\":0}\n", "byte 0: the file begins with 0x7b, and a pickle with 0x80: torch.cuda.memory._dump_snapshot writes one"},
		"protocol 9":        {"\x80\x09.", "protocol 9; 2 to 5 can be read"},
		"cut in a number":   {"\x80\x02J\x01", "ends within a number"},
		"cut in a text":     {"\x80\x02X\x05\x00\x00\x00ab", "ends within a text"},
		"a text of 2 GiB":   {"\x80\x02X\x00\x00\x00\x80", "a text of 2147483648 bytes"},
		"a number of 200 B": {"\x80\x02\x8a\xc8", "a number of 200 bytes"},
		"pop of nothing":    {"\x80\x02.", "nothing is on the stack"},
		"append to nothing": {"\x80\x02Na.", "is not a list"},
		"append to a dict":  {"\x80\x02}Na.", "is not a list"},
		"below a mark":      {"\x80\x02](Na.", "is not a list"},
		"tuple over a mark": {"\x80\x02N(N\x86.", "fewer values"},
		"no mark":           {"\x80\x02]e.", "no MARK is open"},
		"key alone":         {"\x80\x02}(Nu.", "a key without a value"},
		"unset memo":        {"\x80\x02h\x07.", "memo number 7 was never set"},
		"far memo":          {"\x80\x02Nr\xff\xff\xff\x7f.", "memo number 2147483647"},
		"memo of nothing":   {"\x80\x02q\x00.", "nothing is on the stack"},
		"a list":            {"\x80\x02].", "the top: a list, where a dict belongs"},
		"nested lists":      {"\x80\x02" + nested + strings.Repeat("a", 999) + ".", "the top: a list, where a dict belongs"},
		"another dict":      {"\x80\x02}.", "a snapshot has segments and device_traces"},
		"segments a number": {"\x80\x02}(X\x08\x00\x00\x00segmentsK\x01u.", "segments: a number, where a list belongs"},
		"address a text":    {"\x80\x02}(X\x08\x00\x00\x00segments](}(X\x07\x00\x00\x00addressX\x01\x00\x00\x00xueu.", "segments[0].address: a text, where a number belongs"},
		"a size below 0":    {"\x80\x02}(X\x08\x00\x00\x00segments](}(X\x0a\x00\x00\x00total_sizeJ\xfb\xff\xff\xffueu.", "segments[0].total_size: -5, where a number of bytes belongs"},
		"sizes beyond all":  {"\x80\x02}(X\x08\x00\x00\x00segments](" + vast + vast + "eu.", "segments[1].total_size: 9223372036854775807 bytes: the sizes up to here sum to more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := snapshot.Read(strings.NewReader(c.file), snapshot.Limits{})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestMemoryIsBounded reads a small file that describes a large snapshot: one shared trace of a
// thousand copies of one entry, in a list of many copies of the trace. Other files repeat an
// opcode of one byte that uses much memory.
func TestMemoryIsBounded(t *testing.T) {
	testkit.Slow(t)
	bomb := func(traces int) string {
		many, all := strings.Repeat("h\x00", 1000), "]("+strings.Repeat("h\x01", traces)+"e"
		return "\x80\x02}q\x00](" + many + "eq\x01" + "}(X\x0d\x00\x00\x00device_traces" + all + "X\x08\x00\x00\x00segments]u."
	}
	file := bomb(100)
	_, err := snapshot.Read(strings.NewReader(file), snapshot.Limits{Memory: 1 << 20})
	require.ErrorIs(t, err, snapshot.ErrPickle)
	require.ErrorContains(t, err, "Limits.Memory")
	s, err := snapshot.Read(strings.NewReader(file), snapshot.Limits{})
	require.NoError(t, err)
	require.Len(t, s.Traces, 100)
	_, err = snapshot.Read(strings.NewReader(bomb(1000)), snapshot.Limits{})
	require.ErrorContains(t, err, "no snapshot does")
	for _, opcode := range []string{"]", "}", "N", "\x8c\x00", "]a", "N\x85", "]\x94"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = snapshot.Read(io.MultiReader(strings.NewReader("\x80\x02("), strings.NewReader(strings.Repeat(opcode, 8<<20/len(opcode))), strings.NewReader("l.")), snapshot.Limits{})
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, snapshot.ErrPickle, "%q", opcode)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(300<<20), "%q", opcode)
	}

	_, err = snapshot.Read(strings.NewReader("\x80\x02"+strings.Repeat("]", 1<<20)), snapshot.Limits{Memory: 1 << 20})
	require.ErrorContains(t, err, "Limits.Memory")
}

// TestProtocols reads the output of Python's pickle.dumps for the same snapshot, by protocol.
func TestProtocols(t *testing.T) {
	for protocol, file := range pythons {
		s, err := snapshot.Read(strings.NewReader(file), snapshot.Limits{})
		require.NoError(t, err, "protocol %d", protocol)
		require.Equal(t, []snapshot.Segment{{Address: 139672279580672, Size: 2097152, Stream: -1, Small: true, Blocks: []snapshot.Block{
			{Address: 139672279580672, Size: 512, Requested: 5, State: snapshot.Pending, Frames: []snapshot.Frame{{Name: "f", Filename: "a.py", Line: 70000}}},
			{Address: 139672279581184, Size: 2096640, Requested: 2096640, State: snapshot.Inactive},
		}}}, s.Segments, "protocol %d", protocol)
		require.Equal(t, [][]snapshot.TraceEntry{{{Action: snapshot.Alloc, Address: 139672279580672, Size: 5, Frames: s.Segments[0].Blocks[0].Frames}}, nil}, s.Traces)
	}
}

// A compressed snapshot is read like a plain one, and the archive of torch.save is named.
func TestCompressed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(pythons[4]))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	got, err := snapshot.Read(bytes.NewReader(packed.Bytes()), snapshot.Limits{})
	require.NoError(t, err)
	want, err := snapshot.Read(strings.NewReader(pythons[4]), snapshot.Limits{})
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = snapshot.Read(bytes.NewReader(packed.Bytes()[:packed.Len()/2]), snapshot.Limits{})
	require.ErrorContains(t, err, "the file ends")
	_, err = snapshot.Read(strings.NewReader("\x1f\x8b of something else"), snapshot.Limits{})
	require.ErrorIs(t, err, snapshot.ErrPickle)

	packed.Reset()
	z = gzip.NewWriter(&packed)
	_, err = z.Write([]byte("_dump_0/"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	_, err = snapshot.Read(&packed, snapshot.Limits{})
	require.ErrorIs(t, err, snapshot.ErrPickle)
	require.ErrorContains(t, err, "the file begins with 0x5f, and a pickle with 0x80: torch.cuda.memory._dump_snapshot writes one; the bytes are those that gzip unpacks")

	_, err = snapshot.Read(strings.NewReader("PK\x03\x04\x00\x00\x08\x08archive/data.pkl"), snapshot.Limits{})
	require.ErrorIs(t, err, snapshot.ErrPickle)
	require.ErrorContains(t, err, "byte 0: the file is a zip archive, as torch.save writes: unzip -p FILE '*/data.pkl'")
	_, err = snapshot.Read(strings.NewReader("P of something else"), snapshot.Limits{})
	require.ErrorContains(t, err, "byte 0: the file begins with 0x50, and a pickle with 0x80")
}

func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	require.NoError(f, snapshot.Write(&file, small()))
	f.Add(file.Bytes())
	for _, python := range pythons {
		f.Add([]byte(python))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := snapshot.Read(bytes.NewReader(file), snapshot.Limits{Memory: 1 << 22})
		if err != nil {
			return
		}
		for device := range s.Traces {
			rewind.Segments(s, device) // must end, and not panic
		}
		again, err := snapshot.Read(bytes.NewReader(written(t, s)), snapshot.Limits{})
		require.NoError(t, err)
		require.Equal(t, len(s.Segments), len(again.Segments))
	})
}

// pythons are pickles of one small snapshot, by protocol, as written by Python 3.11.
var pythons = map[int]string{
	2: "\x80\x02}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02}q\x03(X\x06\x00\x00\x00deviceq\x04K\x00X\x07\x00\x00\x00addressq\x05\x8a\x06\x00\x00\x9c\xfc\x07\x7fX\x0a\x00\x00\x00total_sizeq\x06J\x00\x00 \x00X\x0e\x00\x00\x00allocated_sizeq\x07K\x00X\x0b\x00\x00\x00active_sizeq\x08M\x00\x02X\x0e\x00\x00\x00requested_sizeq\x09K\x05X\x06\x00\x00\x00streamq\x0aJ\xff\xff\xff\xffX\x0c\x00\x00\x00segment_typeq\x0bX\x05\x00\x00\x00smallq\x0cX\x0f\x00\x00\x00segment_pool_idq\x0dK\x00K\x00\x86q\x0eX\x0d\x00\x00\x00is_expandableq\x0f\x89X\x06\x00\x00\x00framesq\x10]q\x11X\x06\x00\x00\x00blocksq\x12]q\x13(}q\x14(h\x05\x8a\x06\x00\x00\x9c\xfc\x07\x7fX\x04\x00\x00\x00sizeq\x15M\x00\x02h\x09K\x05X\x05\x00\x00\x00stateq\x16X\x14\x00\x00\x00active_awaiting_freeq\x17h\x10]q\x18}q\x19(X\x04\x00\x00\x00nameq\x1aX\x01\x00\x00\x00fq\x1bX\x08\x00\x00\x00filenameq\x1cX\x04\x00\x00\x00a.pyq\x1dX\x04\x00\x00\x00lineq\x1eJp\x11\x01\x00uau}q\x1f(h\x15J\x00\xfe\x1f\x00h\x16X\x08\x00\x00\x00inactiveq h\x10NueuaX\x0d\x00\x00\x00device_tracesq!]q\x22(]q#}q$(X\x06\x00\x00\x00actionq%X\x05\x00\x00\x00allocq&X\x04\x00\x00\x00addrq'\x8a\x06\x00\x00\x9c\xfc\x07\x7fh\x15K\x05h\x0aK\x00h\x10h\x18X\x0f\x00\x00\x00compile_contextq(Nua]q)eX\x12\x00\x00\x00allocator_settingsq*}q+(X\x1c\x00\x00\x00garbage_collection_thresholdq,G?\xe0\x00\x00\x00\x00\x00\x00X\x13\x00\x00\x00expandable_segmentsq-\x89X\x0e\x00\x00\x00max_split_sizeq.J\xff\xff\xff\xffX\x18\x00\x00\x00roundup_power2_divisionsq/}q0X\x01\x00\x00\x001q1K\x00suX\x14\x00\x00\x00external_annotationsq2]q3K\x01K\x02K\x03\x87q4au.",
	3: "\x80\x03}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02}q\x03(X\x06\x00\x00\x00deviceq\x04K\x00X\x07\x00\x00\x00addressq\x05\x8a\x06\x00\x00\x9c\xfc\x07\x7fX\x0a\x00\x00\x00total_sizeq\x06J\x00\x00 \x00X\x0e\x00\x00\x00allocated_sizeq\x07K\x00X\x0b\x00\x00\x00active_sizeq\x08M\x00\x02X\x0e\x00\x00\x00requested_sizeq\x09K\x05X\x06\x00\x00\x00streamq\x0aJ\xff\xff\xff\xffX\x0c\x00\x00\x00segment_typeq\x0bX\x05\x00\x00\x00smallq\x0cX\x0f\x00\x00\x00segment_pool_idq\x0dK\x00K\x00\x86q\x0eX\x0d\x00\x00\x00is_expandableq\x0f\x89X\x06\x00\x00\x00framesq\x10]q\x11X\x06\x00\x00\x00blocksq\x12]q\x13(}q\x14(h\x05\x8a\x06\x00\x00\x9c\xfc\x07\x7fX\x04\x00\x00\x00sizeq\x15M\x00\x02h\x09K\x05X\x05\x00\x00\x00stateq\x16X\x14\x00\x00\x00active_awaiting_freeq\x17h\x10]q\x18}q\x19(X\x04\x00\x00\x00nameq\x1aX\x01\x00\x00\x00fq\x1bX\x08\x00\x00\x00filenameq\x1cX\x04\x00\x00\x00a.pyq\x1dX\x04\x00\x00\x00lineq\x1eJp\x11\x01\x00uau}q\x1f(h\x15J\x00\xfe\x1f\x00h\x16X\x08\x00\x00\x00inactiveq h\x10NueuaX\x0d\x00\x00\x00device_tracesq!]q\x22(]q#}q$(X\x06\x00\x00\x00actionq%X\x05\x00\x00\x00allocq&X\x04\x00\x00\x00addrq'\x8a\x06\x00\x00\x9c\xfc\x07\x7fh\x15K\x05h\x0aK\x00h\x10h\x18X\x0f\x00\x00\x00compile_contextq(Nua]q)eX\x12\x00\x00\x00allocator_settingsq*}q+(X\x1c\x00\x00\x00garbage_collection_thresholdq,G?\xe0\x00\x00\x00\x00\x00\x00X\x13\x00\x00\x00expandable_segmentsq-\x89X\x0e\x00\x00\x00max_split_sizeq.J\xff\xff\xff\xffX\x18\x00\x00\x00roundup_power2_divisionsq/}q0X\x01\x00\x00\x001q1K\x00suX\x14\x00\x00\x00external_annotationsq2]q3K\x01K\x02K\x03\x87q4au.",
	4: "\x80\x04\x95{\x02\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]\x94}\x94(\x8c\x06device\x94K\x00\x8c\x07address\x94\x8a\x06\x00\x00\x9c\xfc\x07\x7f\x8c\x0atotal_size\x94J\x00\x00 \x00\x8c\x0eallocated_size\x94K\x00\x8c\x0bactive_size\x94M\x00\x02\x8c\x0erequested_size\x94K\x05\x8c\x06stream\x94J\xff\xff\xff\xff\x8c\x0csegment_type\x94\x8c\x05small\x94\x8c\x0fsegment_pool_id\x94K\x00K\x00\x86\x94\x8c\x0dis_expandable\x94\x89\x8c\x06frames\x94]\x94\x8c\x06blocks\x94]\x94(}\x94(h\x05\x8a\x06\x00\x00\x9c\xfc\x07\x7f\x8c\x04size\x94M\x00\x02h\x09K\x05\x8c\x05state\x94\x8c\x14active_awaiting_free\x94h\x10]\x94}\x94(\x8c\x04name\x94\x8c\x01f\x94\x8c\x08filename\x94\x8c\x04a.py\x94\x8c\x04line\x94Jp\x11\x01\x00uau}\x94(h\x15J\x00\xfe\x1f\x00h\x16\x8c\x08inactive\x94h\x10Nueua\x8c\x0ddevice_traces\x94]\x94(]\x94}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94\x8a\x06\x00\x00\x9c\xfc\x07\x7fh\x15K\x05h\x0aK\x00h\x10h\x18\x8c\x0fcompile_context\x94Nua]\x94e\x8c\x12allocator_settings\x94}\x94(\x8c\x1cgarbage_collection_threshold\x94G?\xe0\x00\x00\x00\x00\x00\x00\x8c\x13expandable_segments\x94\x89\x8c\x0emax_split_size\x94J\xff\xff\xff\xff\x8c\x18roundup_power2_divisions\x94}\x94\x8c\x011\x94K\x00su\x8c\x14external_annotations\x94]\x94K\x01K\x02K\x03\x87\x94au.",
	5: "\x80\x05\x95{\x02\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]\x94}\x94(\x8c\x06device\x94K\x00\x8c\x07address\x94\x8a\x06\x00\x00\x9c\xfc\x07\x7f\x8c\x0atotal_size\x94J\x00\x00 \x00\x8c\x0eallocated_size\x94K\x00\x8c\x0bactive_size\x94M\x00\x02\x8c\x0erequested_size\x94K\x05\x8c\x06stream\x94J\xff\xff\xff\xff\x8c\x0csegment_type\x94\x8c\x05small\x94\x8c\x0fsegment_pool_id\x94K\x00K\x00\x86\x94\x8c\x0dis_expandable\x94\x89\x8c\x06frames\x94]\x94\x8c\x06blocks\x94]\x94(}\x94(h\x05\x8a\x06\x00\x00\x9c\xfc\x07\x7f\x8c\x04size\x94M\x00\x02h\x09K\x05\x8c\x05state\x94\x8c\x14active_awaiting_free\x94h\x10]\x94}\x94(\x8c\x04name\x94\x8c\x01f\x94\x8c\x08filename\x94\x8c\x04a.py\x94\x8c\x04line\x94Jp\x11\x01\x00uau}\x94(h\x15J\x00\xfe\x1f\x00h\x16\x8c\x08inactive\x94h\x10Nueua\x8c\x0ddevice_traces\x94]\x94(]\x94}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94\x8a\x06\x00\x00\x9c\xfc\x07\x7fh\x15K\x05h\x0aK\x00h\x10h\x18\x8c\x0fcompile_context\x94Nua]\x94e\x8c\x12allocator_settings\x94}\x94(\x8c\x1cgarbage_collection_threshold\x94G?\xe0\x00\x00\x00\x00\x00\x00\x8c\x13expandable_segments\x94\x89\x8c\x0emax_split_size\x94J\xff\xff\xff\xff\x8c\x18roundup_power2_divisions\x94}\x94\x8c\x011\x94K\x00su\x8c\x14external_annotations\x94]\x94K\x01K\x02K\x03\x87\x94au.",
}
