package traces_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/traces"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"

	"github.com/weir-ml/weir/cmd/weir/internal/traces/tracetest"
)

// one returns the spans of a file with the given event, or nil if the file has none.
func one(t *testing.T, event string) []traces.Span {
	all, err := traces.ReadFrom("rank3.json", strings.NewReader(`{"traceEvents":[`+event+`]}`))
	require.NoError(t, err)
	if len(all) == 0 {
		return nil
	}
	require.Equal(t, 3, all[0].Rank)
	return all[0].Spans
}

func TestNames(t *testing.T) {
	for name, want := range map[string][]traces.Span{
		"PP:2F7":                      {{Kind: schedule.F, Stage: 2, Microbatch: 7}},
		"12W130":                      {{Kind: schedule.W, Stage: 12, Microbatch: 130}},
		"PP:(7F0;0B1)OVERLAP_F_B":     {{Kind: schedule.F, Stage: 7}, {Kind: schedule.B, Microbatch: 1}},
		"F stage 1 mb 2":              {{Kind: schedule.F, Stage: 1, Microbatch: 2}},
		"B stage 1 microbatch 2":      {{Kind: schedule.B, Stage: 1, Microbatch: 2}},
		"Forward 3":                   {{Kind: schedule.F, Stage: -1, Microbatch: 3}},
		"Backward 3":                  {{Kind: schedule.B, Stage: -1, Microbatch: 3}},
		"PP:2SEND_F7":                 nil, // a host posts it
		"PP:1UNSHARD":                 nil,
		"aten::mul":                   nil,
		"F stage 99999999999 mb 2":    nil,
		"PP:99999F0":                  nil,
		"Forward now":                 nil,
		"(1F0)OVERLAP_F_B":            nil,
		strings.Repeat("9", 200):      nil,
		"PP:1F9999999999999999999":    nil,
		"ProfilerStep#3":              nil,
		"(" + strings.Repeat("(", 60): nil,
	} {
		got := one(t, fmt.Sprintf(`{"ph":"X","cat":"user_annotation","name":%q,"ts":1.5,"dur":2,"pid":1}`, name))
		for i := range want {
			want[i].Start, want[i].End = 1500, 3500
		}
		require.Equal(t, want, got, name)
	}
}

// If the device has annotations, only those count, from all streams together.
func TestDeviceBeforeHost(t *testing.T) {
	got := one(t, `{"ph":"X","cat":"user_annotation","name":"PP:2F7","ts":1,"dur":1,"pid":1},
		{"ph":"X","cat":"gpu_user_annotation","name":"PP:2F7","ts":10,"dur":5,"pid":0,"tid":7},
		{"ph":"X","cat":"gpu_user_annotation","name":"PP:2F7","ts":12,"dur":7,"pid":0,"tid":20},
		{"ph":"X","cat":"gpu_user_annotation","name":"PP:2SEND_F7","ts":20,"dur":7,"pid":0,"tid":20}`)
	require.Equal(t, []traces.Span{
		{Kind: schedule.F, Stage: 2, Microbatch: 7, Start: 10000, End: 19000},
		{Kind: schedule.SendF, Stage: 2, Microbatch: 7, Start: 20000, End: 27000},
	}, got)
}

// Ascend's profiler (torch_npu 2.14, create_x_event in _trace_event_manager.py) writes ts as a string. A time
// that cannot be read is an error, because an action must not be left out silently.
func TestTimesAsStrings(t *testing.T) {
	got := one(t, `{"ph":"X","name":"PP:2F7","pid":81,"tid":81,"ts":"2493828094901.425","dur":10000.5,"cat":"cpu_op","args":{}}`)
	require.Equal(t, []traces.Span{{Kind: schedule.F, Stage: 2, Microbatch: 7, Start: 2493828094901425, End: 2493828104901925}}, got)
	for _, times := range []string{`"ts":"soon","dur":1`, `"ts":null,"dur":1`, `"dur":1`, `"ts":1,"dur":null`, `"ts":1`, `"ts":1,"dur":"long"`, `"ts":[1],"dur":1`, `"ts":1,"dur":-1`, `"ts":1e300,"dur":1`} {
		_, err := traces.ReadFrom("rank3.json", strings.NewReader(`[{"ph":"X","cat":"user_annotation","name":"PP:2F7","pid":1,`+times+`}]`))
		require.ErrorIs(t, err, traces.ErrTrace)
		require.ErrorContains(t, err, "PP:2F7 has no valid ts and dur", times)
	}
	require.Empty(t, one(t, `{"ph":"i","name":"PP:2F7","ts":"now"}, {"ph":"M","name":"thread_name","ts":"","args":{"name":"2F7"}}`), "they are no spans")
	_, err := traces.ReadFrom("rank3.json", strings.NewReader(`[{"ph":"X","name":"PP:2F7","ts":1,"dur":1,"args":{"loss":NaN}}]`))
	require.ErrorContains(t, err, `found "NaN}}" in an event, which is not JSON`, "Python's json writes NaN")
}

// An action counts once even if several streams have annotations of it. For example, FSDP reduces gradients on
// a separate stream after the computation.
func TestStreamsOfOneAction(t *testing.T) {
	event := func(stream int, name string, start, length float64) string {
		return fmt.Sprintf(`{"ph":"X","cat":"gpu_user_annotation","name":%q,"pid":0,"tid":%d,"ts":%v,"dur":%v}`, name, stream, start, length)
	}
	want := []traces.Span{
		{Kind: schedule.F, Stage: 1, Start: 0, End: 10_000}, {Kind: schedule.B, Stage: 1, Start: 10_000, End: 30_000},
		{Kind: schedule.F, Stage: 1, Start: 50_000, End: 60_000}, {Kind: schedule.B, Stage: 1, Start: 60_000, End: 80_000},
	}
	var computing, reducing []string
	for _, step := range []float64{0, 50} {
		computing = append(computing, event(7, "PP:1F0", step, 10), event(7, "PP:1B0", step+10, 20))
		reducing = append(reducing, event(20, "PP:1B0", step+31, 4))
	}
	require.Equal(t, want, one(t, strings.Join(append(reducing, computing...), ",")))

	// A stream with kernels of NCCL communicates, even if its annotations are longer and overlap.
	kernel := `{"ph":"X","cat":"kernel","name":"ncclDevKernel_ReduceScatter_Sum_bf16","pid":0,"tid":20,"ts":5,"dur":44}`
	overlapping := []string{kernel, event(20, "PP:1F0", 0, 12), event(20, "PP:1B0", 12, 37), event(20, "PP:1F0", 50, 12), event(20, "PP:1B0", 62, 37)}
	require.Equal(t, want, one(t, strings.Join(append(overlapping, computing...), ",")))

	// Computations on another stream belong to the action while they overlap.
	require.Equal(t, append([]traces.Span{{Kind: schedule.F, Stage: 1, End: 11_000}}, want[1:]...), one(t, strings.Join(append(computing, event(9, "PP:1F0", 4, 7)), ",")))
}

// Host spans beside kernels time launches. torch.profiler annotates on the device only what the thread of
// the record_function launches, and autograd launches the backward on another (pytorch/kineto#1132).
func TestLaunches(t *testing.T) {
	const (
		f, b   = `{"ph":"X","cat":"user_annotation","name":"PP:0F0","ts":1,"dur":1,"pid":9,"tid":9},`, `{"ph":"X","cat":"user_annotation","name":"PP:0B0","ts":3,"dur":1,"pid":9,"tid":9},`
		device = `{"ph":"X","cat":"gpu_user_annotation","name":"PP:0F0","ts":10,"dur":5,"pid":0,"tid":7},`
		i, w   = `{"ph":"X","cat":"user_annotation","name":"PP:0I0","ts":3,"dur":1,"pid":9,"tid":9},`, `{"ph":"X","cat":"user_annotation","name":"PP:0W0","ts":5,"dur":1,"pid":9,"tid":9},`
		later  = `{"ph":"X","cat":"gpu_user_annotation","name":"PP:0W0","ts":20,"dur":5,"pid":0,"tid":7},`
		kernel = `{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":10,"dur":5}`
		ascend = `{"ph":"X","name":"MatMulV2","pid":3,"tid":7,"ts":"10.0","dur":5,"args":{"Task Type":"AI_CORE"}}`
		op     = `{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":1,"dur":1,"args":{"kernel":"kernel"}}`
	)
	for name, c := range map[string]struct {
		events    string
		launches  []schedule.Kind
		annotated bool
	}{
		"a processor":           {f + b + op, nil, false},
		"host alone":            {f + b + kernel, []schedule.Kind{schedule.F, schedule.B}, false},
		"Ascend":                {f + b + ascend, []schedule.Kind{schedule.F, schedule.B}, false},
		"forwards on device":    {f + b + device + op, []schedule.Kind{schedule.B}, true},
		"evaluation on device":  {f + device + kernel, nil, true},
		"I of the first stage":  {f + i + w + device + later + kernel, nil, true},
		"W of the device alone": {w + device + later + kernel, nil, true},
	} {
		all, err := traces.ReadFrom("rank0.json", strings.NewReader("["+c.events+"]"))
		require.NoError(t, err, name)
		require.Len(t, all, 1, name)
		require.Equal(t, c.launches, all[0].Launches, name)
		require.Equal(t, c.annotated, all[0].Annotated, name)
		if name == "I of the first stage" {
			require.Equal(t, []traces.Span{{Kind: schedule.F, Start: 10_000, End: 15_000}, {Kind: schedule.I, Start: 20_000, End: 20_000}, {Kind: schedule.W, Start: 20_000, End: 25_000}}, all[0].Spans)
		}
	}
}

// annotate.py names the actions of PyTorch 2.15's GPipe a second time.
func TestNamedTwice(t *testing.T) {
	got := one(t, `{"ph":"X","cat":"user_annotation","name":"Forward 7","ts":1,"dur":9,"pid":1},
		{"ph":"X","cat":"user_annotation","name":"PP:2F7","ts":3,"dur":5,"pid":1}, {"ph":"X","cat":"user_annotation","name":"PP:2F7","ts":2,"dur":7,"pid":1}`)
	require.Equal(t, []traces.Span{{Kind: schedule.F, Stage: 2, Microbatch: 7, Start: 2000, End: 9000}}, got)
}

// TestConsole reads spans as the console exporter of OpenTelemetry for Python prints them.
func TestConsole(t *testing.T) {
	var b strings.Builder
	for mb := range 2 {
		for _, name := range []string{"forward", "backward"} {
			attributes := "{}"
			if name == "forward" {
				attributes = fmt.Sprintf(`{"megatron.microbatch_id": %d}`, mb)
			}
			fmt.Fprintf(&b, `{
    "name": "megatron.microbatch.%s",
    "context": {"trace_id": "0x1"},
    "start_time": "2026-08-01T12:00:0%d.000001Z",
    "end_time": "2026-08-01T12:00:0%d.500001Z",
    "attributes": %s,
    "resource": {"attributes": {"host.name": "node7", "dl.rank": 5, "dl.pipeline_parallel.rank": 1}, "schema_url": ""}
}
`, name, mb, mb, attributes)
		}
	}
	all, err := traces.ReadFrom("spans.json", strings.NewReader(b.String()))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "node7", all[0].Host)
	require.Equal(t, 5, all[0].Rank)
	var names []string
	for _, s := range all[0].Spans {
		names = append(names, schedule.NewAction(s.Kind, s.Stage, s.Microbatch).String())
		require.EqualValues(t, 500_000_000, s.End-s.Start)
	}
	require.Equal(t, []string{"1F0", "1B0", "1F1", "1B1"}, names)
}

// A hostile file cannot make the reader hold much more than its actions.
func TestHostile(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"traceEvents":[{"ph":"X","name":"`), io.LimitReader(letters{}, 64<<20))
	deep := strings.NewReader(`{"traceEvents":[` + strings.Repeat(`{"args":[`, 1<<20))
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := io.CopyN(z, letters{}, 256<<20)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, c := range map[string]struct {
		text io.Reader
		want string
	}{
		"endless string": {endless, "the file ends inside of a value"},
		"deep":           {deep, "the file ends inside of a value"},
		"gzip bomb":      {io.MultiReader(bytes.NewReader(bombed(t)), &bomb), "unpacks to far more"},
		"empty":          {strings.NewReader(""), "the file is empty"},
		"no JSON":        {strings.NewReader("hello"), `found 'h', expected an object`},
		"no rank":        {strings.NewReader(`{"traceEvents":[{"ph":"X","cat":"user_annotation","name":"PP:2F7","ts":1,"dur":1,"pid":1}]}`), "which rank"},
		"events no list": {strings.NewReader(`{"traceEvents":{}}`), "expected a list"},
		"closed twice":   {strings.NewReader(`{"x":]}`), "expected a value"},
		"base":           {strings.NewReader(`{"baseTimeNanoseconds":-1}`), "baseTimeNanoseconds"},
		"times":          {strings.NewReader(`{"resourceSpans":[{"scopeSpans":7}]}`), `found resourceSpans "{\"scopeSpans\":7}", expected a list of batches`},
		"a fraction":     {strings.NewReader(`{"baseTimeNanoseconds":1.5}`), `found baseTimeNanoseconds "1.5", expected a whole number`},
		"a rank":         {strings.NewReader(`{"distributedInfo":{"rank":"0"}}`), `found distributedInfo "{\"rank\":\"0\"}", expected an object whose rank`},
		"a time":         {strings.NewReader(`{"name":"x","start_time":"noon"}`), `found start_time "\"noon\"", expected a time, such as`},
		"an escape":      {strings.NewReader(`{"name":"\x"}`), `found name "\"\\x\"", expected a string`},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := traces.ReadFrom("trace.json", c.text)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, traces.ErrTrace)
			require.ErrorContains(t, err, c.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "bytes allocated")
		})
	}
}

// bombed is the beginning of a gzip file whose content opens a string.
func bombed(t *testing.T) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(`{"x":"`))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// A file of 45 MB is read without holding it.
func TestStreams(t *testing.T) {
	event := `{"ph":"X","cat":"cpu_op","name":"aten::mul","pid":1,"tid":1,"ts":1,"dur":1,"args":{"Input Dims":[[1,2],[3]]}},` + "\n"
	many := io.MultiReader(strings.NewReader(`{"traceEvents":[`+"\n"), io.LimitReader(&repeated{text: event}, int64(len(event))*400_000),
		strings.NewReader(`{"ph":"X","cat":"user_annotation","name":"PP:0F0","ts":1,"dur":2,"pid":1}]}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all, err := traces.ReadFrom("rank0.json", many)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "bytes allocated")
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], r.text[r.at:])
		n, r.at = n+k, (r.at+k)%len(r.text)
	}
	return n, nil
}

// samples returns files of several forms.
func samples(tb testing.TB) [][]byte {
	p, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 2})
	require.NoError(tb, err)
	s, err := tracetest.Simulate(p, &simulate.Costs{Unit: "ns", Stages: []simulate.StageCosts{{F: 1000, B: 2000}}}, 1)
	require.NoError(tb, err)
	weir, err := s.Weir()
	require.NoError(tb, err)
	return [][]byte{s.Kineto(0, "user_annotation"), s.Kineto(1, "gpu_user_annotation"), s.OTLP(1), weir}
}

// FuzzRead requires that the readers of Chrome traces and of OpenTelemetry succeed or return their own errors.
func FuzzRead(f *testing.F) {
	for _, text := range samples(f) {
		f.Add(text)
	}
	f.Add([]byte(`{"name":"megatron.microbatch.forward","start_time":"2026-08-01T12:00:00Z","end_time":"2026-08-01T12:00:01Z","attributes":{"dl.rank":1}}`))
	f.Add([]byte(`[{"ph":"X","name":"(7F0;0B1)OVERLAP_F_B","ts":1e300,"dur":-1,"pid":4}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := traces.ReadFrom("rank1.json", bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, traces.ErrTrace)
			return
		}
		for _, one := range all {
			require.NotEmpty(t, one.Spans)
			for i, s := range one.Spans {
				require.GreaterOrEqual(t, s.End, s.Start)
				require.True(t, i == 0 || s.Start >= one.Spans[i-1].Start)
				require.Less(t, s.Stage, schedule.MaxStages)
				require.Less(t, s.Microbatch, schedule.MaxMicrobatches)
			}
		}
	})
}
