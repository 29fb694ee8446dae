package format_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// written returns the plan in a form.
func written(t require.TestingT, p *schedule.Plan, f format.Format) string {
	var b strings.Builder
	require.NoError(t, format.Write(&b, p, f))
	return b.String()
}

// read reads a text that must be well-formed.
func read(t require.TestingT, text string, options format.Options) *format.File {
	file, err := format.Read(strings.NewReader(text), options)
	require.NoError(t, err, text)
	return file
}

// actions returns the actions of a rank.
func actions(p *schedule.Plan, rank int) []schedule.Action {
	return slices.Collect(p.All(rank))
}

// words returns the actions of a rank in the text form.
func words(p *schedule.Plan, rank int) string {
	var words []string
	for a := range p.All(rank) {
		word, _ := a.MarshalText()
		words = append(words, string(word))
	}
	return strings.Join(words, " ")
}

func TestNames(t *testing.T) {
	for f := format.Auto; f <= format.JSON; f++ {
		back, ok := format.Parse(f.String())
		require.True(t, ok)
		require.Equal(t, f, back)
	}
	_, ok := format.Parse("csv")
	require.False(t, ok)
	require.Equal(t, "format(?)", format.Format(99).String())
}

func TestDetect(t *testing.T) {
	for text, want := range map[string]format.Format{
		"0F0,0B0\n":                         format.Compute,
		",0F0\n":                            format.Compute,
		"\r\n(0F0;1B0)OVERLAP_F_B":          format.Compute,
		"0F0,0SEND_F0,0WAIT_SEND_F0\n":      format.Comms,
		"0F0,0SEND_F0\n":                    format.Comms26,
		"0F0\n1RECV_F0,1F0":                 format.Comms,
		"0F0,0B0,0REDUCE_GRAD":              format.Compute,
		"0UNSHARD,0F0,0B0,0REDUCE_GRAD":     format.Comms26,
		"0UNSHARD,0F0":                      format.Comms,
		"1 1 -1 -1":                         format.Order,
		"[1, 1, -1, -1.5]\r\n[1]":           format.Order,
		" {\"schema\": 1":                   format.JSON,
		"# by hand\n  # still\nweir plan 1": format.Text,
		"":                                  format.Auto,
		" \n":                               format.Auto,
		"# only this":                       format.Auto,
		"hello":                             format.Auto,
		"<svg>":                             format.Auto,
	} {
		require.Equal(t, want, format.Detect(text), "%q", text)
	}
}

// draw draws a plan of a random rule with random parameters.
func draw(t *rapid.T) *schedule.Plan {
	ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
	chunks := rapid.IntRange(1, 3).Draw(t, "chunks")
	params := schedule.Params{Microbatches: 2*ranks + rapid.IntRange(0, 7).Draw(t, "microbatches")}
	one, looped, v := schedule.Looped(ranks, ranks), schedule.Looped(ranks, ranks*chunks), schedule.Wave(ranks, 2*ranks)
	rules := []struct {
		rule  schedule.Rule
		place schedule.Placement
	}{
		{schedule.OneFOneB, one}, {schedule.GPipe, looped}, {schedule.Interleaved, looped},
		{schedule.ZBH1, one}, {schedule.ZB1P, looped}, {schedule.ZBV, v}, {schedule.DualPipeV, v},
	}
	if ranks%2 == 0 {
		params.Microbatches &^= 1
		rules = append(rules, rules[len(rules)-1])
		rules[len(rules)-1].rule, rules[len(rules)-1].place = schedule.DualPipe, schedule.Bidirectional(ranks)
	}
	made := rules[rapid.IntRange(0, len(rules)-1).Draw(t, "rule")]
	params.Placement = made.place
	if rapid.IntRange(0, 4).Draw(t, "mode") == 0 {
		params.Mode = schedule.ForwardOnly
	}
	return plantest.Made(t, made.rule, params)
}

// TestPlansComeBack: a written plan is read with everything that the form expresses, and
// written again as the same bytes.
func TestPlansComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		for _, f := range []format.Format{format.Text, format.JSON, format.Compute, format.Order} {
			var b strings.Builder
			err := format.Write(&b, p, f)
			if f == format.Order && err != nil {
				require.ErrorIs(t, err, format.ErrRefused)
				require.Empty(t, b.String())
				continue
			}
			require.NoError(t, err)
			file := read(t, b.String(), format.Options{Name: "dir/plan"})
			require.Equal(t, f, file.Format)
			require.Equal(t, b.String(), written(t, file.Plan, f))
			if f == format.Text || f == format.JSON {
				require.Equal(t, p, file.Plan)
				continue
			}
			require.Equal(t, "plan", file.Plan.Name)
			require.Equal(t, p.Placement, file.Plan.Placement)
			require.Equal(t, p.Microbatches, file.Plan.Microbatches)
			require.Equal(t, p.Mode, file.Plan.Mode)
			for rank := range p.Programs {
				require.Equal(t, actions(p, rank), actions(file.Plan, rank))
			}
		}
	})
}

// TestTransfersComeBack: plans with transfers survive too, with their waits.
func TestTransfersComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := draw(t)
		drawn.Runtime = schedule.PyTorch
		p, err := lower.Transfers(drawn, schedule.Unlimited)
		require.NoError(t, err)
		text := written(t, p, format.Comms)
		file := read(t, text, format.Options{Format: format.Comms})
		require.Equal(t, text, written(t, file.Plan, format.Comms))
		require.Equal(t, p.Placement, file.Plan.Placement)
		for rank := range p.Programs {
			require.Equal(t, actions(p, rank), actions(file.Plan, rank))
		}
		require.Equal(t, p, read(t, written(t, p, format.JSON), format.Options{}).Plan)
	})
}

// TestCommsKeepOneQueue: PyTorch matches the messages between two ranks only by their order, outputs and gradients
// together. A plan that needs a queue for each would silently train with the wrong tensors.
func TestCommsKeepOneQueue(t *testing.T) {
	p := plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 8})
	two, err := lower.Transfers(p, 1)
	require.NoError(t, err)
	require.NoError(t, check.Plan(two), "with a queue for each it is right")
	err = format.Write(io.Discard, two, format.Comms)
	require.ErrorIs(t, err, format.ErrRefused)
	require.ErrorContains(t, err, "receives 2SEND_B0, which rank 0 sent before 0SEND_F2")
	wrong := written(t, forPyTorch(two), format.Comms) // without a check
	require.ErrorIs(t, check.Plan(read(t, wrong, format.Options{}).Plan), check.ErrInvalidPlan, "a file of PyTorch's has one queue")

	for _, s := range schedule.Schedules() {
		for _, ranks := range []int{2, 4} {
			for _, m := range []int{8, 12, 24} {
				place, err := s.Place(ranks, ranks*s.PerRank)
				require.NoError(t, err)
				p := plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: m})
				for capacity := schedule.Unlimited; capacity <= 1; capacity++ {
					one, err := lower.Transfers(forPyTorch(p), capacity)
					require.NoError(t, err, "%s", p.Name)
					file := read(t, written(t, one, format.Comms), format.Options{Microbatches: m})
					require.NoError(t, check.Links(file.Plan, capacity), "%s on %d ranks", p.Name, ranks)
				}
			}
		}
	}
}

func forPyTorch(p *schedule.Plan) *schedule.Plan {
	one := *p
	one.Runtime = schedule.PyTorch
	return &one
}

// TestWholePlans: Text and JSON have everything in a plan.
func TestWholePlans(t *testing.T) {
	const text = `weir plan 1 name "all \"of\" <it> & more" mode training ranks 2 stages 4 microbatches 5 copies 2 slices 3
placement 0 1 1 0 frozen 0 2
stage 0: window=1 outgoing=2 facts=frozen reads=F:0,63 drops=-
stage 1: window=2 outgoing=0 facts=split,recomputes,quantizes reads=- drops=-
stage 2: window=1 outgoing=1 facts=frozen reads=- drops=F:0;B:1,2
stage 3: window=3 outgoing=1 facts=- reads=- drops=-
rank 0: entries=2 x 4 +1: 0F0~p& 3B7~gs 3RECV_B0 x 1 -3: 0UNSHARD
rank 1: entries=1`
	file := read(t, text, format.Options{Ranks: 2, Stages: 4, Microbatches: 5})
	for _, f := range []format.Format{format.Text, format.JSON} {
		again := written(t, file.Plan, f)
		back := read(t, again, format.Options{})
		require.Equal(t, f, back.Format)
		require.Equal(t, file.Plan, back.Plan)
		require.Equal(t, again, written(t, back.Plan, f))
	}
	costs := &simulate.Costs{Unit: "<ms>", Scale: 1000, Latency: 601, Resident: []int64{1, 2}, Stages: []simulate.StageCosts{{F: 3}, {F: 4, Saved: 5}}}
	var with, again strings.Builder
	require.NoError(t, format.WriteJSON(&with, file.Plan, costs))
	require.Contains(t, with.String(), "\n  \"costs\": {\n    \"schema\": 1,\n")
	back := read(t, with.String(), format.Options{})
	require.Equal(t, file.Plan, back.Plan)
	require.Equal(t, costs, back.Costs)
	require.NoError(t, format.WriteJSON(&again, back.Plan, back.Costs))
	require.Equal(t, with.String(), again.String())
	require.ErrorIs(t, format.WriteJSON(io.Discard, file.Plan, &simulate.Costs{}), simulate.ErrCosts)

	for options, want := range map[*format.Options]string{
		{Ranks: 3}:        "found a plan of 2 ranks, expected 3, as in the options",
		{Stages: 3}:       "found a plan of 4 stages, expected 3, as in the options",
		{Microbatches: 3}: "found a plan of 5 microbatches, expected 3, as in the options",
	} {
		_, err := format.Read(strings.NewReader(text), *options)
		require.ErrorIs(t, err, format.ErrFormat)
		require.ErrorContains(t, err, want)
	}
}

// TestFilesComeBack requires that a file is written as it was read, byte for byte, with any
// line ends, and that every action has its location.
func TestFilesComeBack(t *testing.T) {
	for _, text := range []string{
		"0F0,,0B0\n,1F0,1B0\n",
		"0F0,,0B0\r\n,1F0,1B0\r\n",
		"0F0, 0B0 ,,\n1F0\t,1B0\n\n\n",
		"0F0,0I0,0W0",
		"0F0,0B0,0W0,0F1,0B1,0W1",
		"0F0,0SEND_F0,0RECV_B0,0BW0\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\n",
		"0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n",
		"0QUANTIZE,0F0,0B0\n",
		"1F0,(1F1;0B0)OVERLAP_F_B,1B0\n(0F0;1B1)OVERLAP_F_B\n",
		"1 1 -1 -1\n1 -1 1 -1\n",
		"[1, 1, -1.5, -1]\r\n[1, -1, -1.5]\r\n\r\n",
		"# by hand\nweir plan 1 name \"n\" mode training ranks 2 stages 2 microbatches 3 placement 0 1 frozen none\nrank 0:\nx 3 +1: 0F0~r\n   0B0\nx 1 +0: 0B3\nrank 1:\nx 1 +0: 1F0& 1B0\n",
		"weir plan 1 name \"n\" mode training ranks 2 stages 2 microbatches 12 placement 0 1 frozen none\nrank 0:\nx 1 +0: 0F0\nx 3 +4: (\nx 4 +1: 0F1\n0B0 x 2 +0: 0B9 )\nx 1 +0: 0B3\nrank 1:\nx 1 +0: 1F0& 1B0\n",
		"{\"programs\":[[{\"segments\":[{\"repeat\":2,\"stride\":1,\"actions\":[[\"F\",0,0]]},{\"actions\":[[\"B\",0,3]\n,[ \"B\" ,0,4,\"input\"]],\"repeat\":1,\"stride\":0}],\"stride\":2,\"repeat\":3},\n{\"repeat\":1,\"stride\":0,\"actions\": [[\"W\",0,0]]}]],\"ranks\":1,\"schema\":2,\"name\":\"n\",\"mode\":\"training\",\"placement\":[0],\"microbatches\":7}",
		"{\"programs\":[[{\"actions\":[[\"F\",0,0], [\"B\",0,0]],\"stride\":1,\"repeat\":3}],\n[{\"repeat\":1,\"stride\":0,\"actions\": [[\"F\",1,0]]},{\"repeat\":2,\"stride\":0,\"actions\":[[[\"B\",1,0],[\"B\",1,0]]]}]],\"ranks\":2,\"schema\":2,\"name\":\"n\",\"mode\":\"training\",\"placement\":[0,1],\"microbatches\":3}",
	} {
		file := read(t, text, format.Options{})
		var back strings.Builder
		n, err := file.WriteTo(&back)
		require.NoError(t, err)
		require.EqualValues(t, len(text), n)
		require.Equal(t, text, back.String())

		lines := strings.Split(text, "\n")
		for rank, program := range file.Plan.Programs {
			position := int64(0)
			expect := func(a schedule.Action) {
				line, column := file.LineColumn(rank, position)
				at := lines[line-1][column-1:]
				switch file.Format {
				case format.Order:
					number := strings.Trim(strings.FieldsFunc(at, func(r rune) bool { return strings.ContainsRune(" ,]", r) })[0], "-")
					require.Equal(t, fmt.Sprint(a.Stage()/file.Plan.Placement.Ranks+1), strings.TrimSuffix(number, ".5"), text)
				case format.JSON:
					require.Regexp(t, fmt.Sprintf(`^\[ ?"%v" ?,%d,%d[],]`, a.Kind(), a.Stage(), a.Microbatch()), at, text)
				default:
					stage, mb := fmt.Sprint(a.Stage()), fmt.Sprint(a.Microbatch())
					require.Regexp(t, "^"+stage+"[A-Z_]+("+mb+")?([ ,;)\t\r\"~&]|$)", at, text)
				}
				position++
			}
			for _, outer := range program {
				for range outer.Repeat {
					for _, segment := range outer.Inside() {
						for range segment.Repeat {
							for _, a := range segment.Body {
								expect(a)
							}
						}
					}
				}
			}
			firstLine, firstColumn := file.LineColumn(rank, -1)
			beyondLine, beyondColumn := file.LineColumn(rank, position)
			require.Equal(t, [2]int{firstLine, firstColumn}, [2]int{beyondLine, beyondColumn})
		}
		for _, rank := range []int{-1, 9} {
			line, column := file.LineColumn(rank, 0)
			require.Equal(t, [2]int{1, 1}, [2]int{line, column})
		}
	}
	file := read(t, "0F0", format.Options{})
	_, err := file.WriteTo(full{})
	require.ErrorIs(t, err, io.ErrShortWrite)
}

// full accepts no bytes.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestStreams(t *testing.T) {
	testkit.Slow(t)
	lost := errors.New("lost")
	_, err := format.Read(iotest.ErrReader(lost), format.Options{})
	require.ErrorIs(t, err, lost)
	_, err = format.Read(io.LimitReader(endless{}, format.MaxBytes+10), format.Options{})
	require.ErrorIs(t, err, format.ErrFormat)
	require.ErrorContains(t, err, "longer than 134217728 bytes")
	_, err = format.Read(io.LimitReader(endless{}, format.MaxBytes+10), format.Options{Name: "dir/long"})
	require.EqualError(t, err, "format: invalid plan file: dir/long: the file is longer than 134217728 bytes: write the plan as segments, in the text form or as JSON")
	_, err = format.Read(iotest.ErrReader(lost), format.Options{Name: "dir/gone"})
	require.EqualError(t, err, "format: dir/gone: lost")
	_, err = format.Read(iotest.ErrReader(&fs.PathError{Op: "read", Path: "dir", Err: lost}), format.Options{Name: "dir"})
	require.EqualError(t, err, "format: read dir: lost")
	_, err = format.Read(strings.NewReader("0F0"), format.Options{Name: "dir/few", Ranks: -1})
	require.ErrorContains(t, err, "format: invalid plan file: dir/few: the options ask for -1 ranks")
	_, err = format.Read(strings.NewReader("hello"), format.Options{Name: "dir/hello"})
	require.ErrorContains(t, err, "format: invalid plan file: dir/hello:1:1: found")
	p := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 3})
	for _, f := range []format.Format{format.Text, format.Compute, format.Order, format.JSON} {
		require.ErrorIs(t, format.Write(full{}, p, f), io.ErrShortWrite)
	}
	for _, options := range []format.Options{{Ranks: -1}, {Stages: schedule.MaxStages + 1}, {Microbatches: schedule.MaxMicrobatches + 1}, {Slices: -3}} {
		_, err := format.Read(strings.NewReader("0F0"), options)
		require.ErrorIs(t, err, format.ErrFormat)
		require.ErrorContains(t, err, "or 0 to take the number from the file")
	}
}

// endless is an endless reader of commas.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{','}, len(b)))
	return len(b), nil
}

// TestOldSchema: a file of schema 1 is read only if the options say so, and written in today's schema.
func TestOldSchema(t *testing.T) {
	const old = `{"schema": 1, "name": "n", "mode": "training", "ranks": 1, "placement": [0], "microbatches": 3, "programs": [[
		{"repeat": 1, "stride": 0, "actions": "0UNSHARD 0F0 0F1~p& 0I0~gs"},
		{"repeat": 2, "stride": 1, "segments": [{"repeat": 1, "stride": 0, "actions": "0W0~sr 0WAIT_OFFLOAD1~s"}]}]]}`
	_, err := format.Read(strings.NewReader(old), format.Options{})
	require.ErrorContains(t, err, "line 1:12: found schema 1, expected 2: weir convert OLD --to plan -o NEW converts the file")
	file := read(t, old, format.Options{OldSchema: true})
	require.Equal(t, "0WAIT_OFFLOAD1~s", string(must(file.Plan.Programs[0][1].Inner[0].Body[1].MarshalText())))
	line, _ := file.LineColumn(0, 6)
	require.Equal(t, 3, line)
	today := written(t, file.Plan, format.JSON)
	require.Contains(t, today, `[["UNSHARD",0,null], ["F",0,0], [["F",0,1,"entry"], ["I",0,0,"gradient","saved"]]]`)
	require.Contains(t, today, `[["W",0,0,"carry","microbatch"], ["WAIT_OFFLOAD",0,1,"near"]]`)
	require.Equal(t, file.Plan, read(t, today, format.Options{}).Plan)
	for bad, want := range map[string]string{
		strings.Replace(old, "0F0", "0X0", 1):   `2:41: found "0X0", expected an action such as 2F0`,
		strings.Replace(old, `: 1,`, `: 2,`, 1): `2:41: found "0UNSHARD 0F0 0F1~p& 0I0~gs", expected a list of actions`,
		`{"programs": [[{"actions": " "}]]}`:    `1:28: found " ", expected actions such as 2F0`,
	} {
		_, err := format.Read(strings.NewReader(bad), format.Options{OldSchema: true})
		require.ErrorContains(t, err, "line "+want)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestErrors: a fault of a file has its location, what was found there and what was
// expected.
func TestErrors(t *testing.T) {
	const head = "{\"schema\": 2, \"name\": \"n\", \"mode\": \"training\", \"ranks\": 1, \"placement\": [0], \"microbatches\": 2,\n "
	const tail = "\"programs\": [[{\"repeat\": 2, \"stride\": 1, \"actions\": [[\"F\",0,0],[\"B\",0,0]]}]]}"
	read(t, head+tail, format.Options{})
	for _, test := range []struct {
		format format.Format
		text   string
		want   string
	}{
		{format.Auto, "", `1:1: found the end of the file, expected a plan`},
		{format.Auto, "hello world", `1:1: found "hello", expected a plan: cells such as 2F0, signed numbers, {, or weir plan 1`},
		{format.Text, "weir\n  cat", `2:3: found "cat", expected plan`},

		{format.Compute, "", `1:1: found the end of the file, expected a line for rank 0`},
		{format.Compute, ",,\n", `2:1: found the end of the file, expected an action`},
		{format.Compute, "0F0,0F1\n0X0", `2:1: found "0X0", expected an action such as 2F0: stage up to 16383, kind, microbatch up to 268435455`},
		{format.Compute, "0F0,16384F1", `1:5: found "16384F1", expected an action such as 2F0: stage up to 16383`},
		{format.Compute, "0F0,1F268435456", `1:5: found "1F268435456", expected an action`},
		{format.Compute, "0F0, \"0F1", `1:6: found "\"0F1", expected an action`},
		{format.Compute, "0F0,0SEND_F0", `1:5: found "0SEND_F0", expected F, B, I or W: a compute-only file has no other actions`},
		{format.Compute, "0F0,0OPTIMIZER", `1:5: found "0OPTIMIZER", expected F, B, I or W`},
		{format.Compute, "0F0\n\n0F0,(0F1;0B0)OVERLAP", `3:5: found "(0F1;0B0)OVERLAP", expected a joined pair such as (0F7;7B3)OVERLAP_F_B`},
		{format.Compute, "(0F1)OVERLAP_F_B", `1:1: found "(0F1)OVERLAP_F_B", expected a joined pair`},
		{format.Compute, "(0F1;0B0;0W0)OVERLAP_F_B", `1:6: found "0B0;0W0", expected an action`},
		{format.Compute, "(0F1;)OVERLAP_F_B", `1:6: found "", expected an action`},
		{format.Comms, "(0F1;0SEND_F0)OVERLAP_F_B", `1:6: found "0SEND_F0", expected F, B, I or W: only computations are joined`},
		{format.Comms, "0F0,,0B0", `1:5: found an empty cell, expected an action: only a compute-only file has idle ticks`},
		{format.Comms, "0F0,0WAIT_F0", `1:5: found "0WAIT_F0", expected F, B, I, W, a SEND, a RECV, UNSHARD, RESHARD, REDUCE_GRAD, WAIT_SEND_F, WAIT_SEND_B, WAIT_REDUCE_GRAD or QUANTIZE`},
		{format.Comms, "0F0,0BW0x", `1:5: found "0BW0x", expected an action such as 2F0 or 1SEND_F3: stage`},
		{format.Comms, "0F0,0F" + strings.Repeat("1", 60), `1:5: found "0F11111111111111111111111111111111111111...", expected an action`},

		{format.Order, "1 1\n-1 x", `2:4: found "x", expected 1 to 8192 for the forward of a stage of the rank, -1 for its backward, or -1.5 for its weight gradient`},
		{format.Order, "1 0", `1:3: found "0", expected 1 to 16384`},
		{format.Order, "1 -16385", `1:3: found "-16385", expected 1 to 16384`},
		{format.Order, "1 1.5", `1:3: found "1.5", expected 1 to 16384`},
		{format.Order, "1 --1", `1:3: found "--1", expected 1 to 16384`},
		{format.Order, "1 +1", `1:3: found "+1", expected 1 to 16384`},
		{format.Order, "1 -", `1:3: found "-", expected 1 to 16384`},
		{format.Order, "[ ]", `1:4: found the end of the file, expected an action`},
		{format.Order, "1 -1.25", `1:3: found "-1.25", expected 1 to 16384`},

		{format.JSON, "", `1:1: found the end of the text, expected more of the plan`},
		{format.JSON, "[]", `1:1: found [, expected an object, {`},
		{format.JSON, "{\n \"schema\": 1", `2:12: found schema 1, expected 2: weir convert OLD --to plan -o NEW converts the file`},
		{format.JSON, "{\n \"schema\": 3", `2:12: found schema 3, expected 2: read it with the version of Weir that wrote it, or write it again with this one`},
		{format.JSON, "{\"schema\": 2,\n}", `2:1: found "}", expected the name of a field, in quotes`},
		{format.JSON, "{\"schema\": 2,\n\"schema\": 2}", `2:1: found "schema", which is there already: give it once`},
		{format.JSON, "{\"schema\": 2,\n\"shape\": 1}", `2:1: found an unknown field "shape", expected schema, name, mode,`},
		{format.JSON, "{\"schema\": 1.5}", `1:12: found 1.5, expected the schema`},
		{format.JSON, "{\"schema\": \"1\"}", `1:12: found "1", expected the schema`},
		{format.JSON, "{\"schema\": 2", `1:13: found the end of the text, expected more of the plan`},
		{format.JSON, "{\"schema\": 2}", `1:13: found "}", expected the field name before it`},
		{format.JSON, "{\"name\": 1}", `1:10: found 1, expected a string`},
		{format.JSON, "{\"mode\": \"eval\"}", `1:10: found "eval", expected "training" or "forward-only"`},
		{format.JSON, "{\"ranks\": 0}", `1:11: found 0, expected a number of ranks as a whole number from 1 to 16384`},
		{format.JSON, "{\"placement\": [0, -1]}", `1:19: found -1, expected the rank of a stage as a whole number from 0 to 16383`},
		{format.JSON, "{\"microbatches\": 268435457}", `1:18: found 268435457, expected a number of microbatches as a whole number from 1 to 268435456`},
		{format.JSON, "{\"facts\": [{\"reads\": {\"F\": [0], \"F\": [1]}}]}", `1:33: found "F", which is there already: give it once`},
		{format.JSON, "{\"facts\": [{\"reads\": {\"FF\": [0]}}]}", `1:23: found an unknown field "FF", expected a kind such as F or B`},
		{format.JSON, "{\"facts\": [{\"split\": 1}]}", `1:22: found 1, expected true or false`},
		{format.JSON, "{\"facts\": [{\"splits\": 1}]}", `1:13: found an unknown field "splits", expected frozen, split, recomputes, quantizes or reads`},
		{format.JSON, "{\"parts\": [{\"F\": [64]}]}", `1:19: found 64, expected an entry part as a whole number from 0 to 63`},
		{format.JSON, "{\"programs\": [[{\"repeat\": 1, \"segments\": []}]]}", `1:44: found "}", expected the repeat and the actions of the segment before it`},
		{format.JSON, "{\"programs\": [[{\"repeat\": 1, \"segments\": [{\"segments\": []}]}]]}", `1:44: found an unknown field "segments", expected repeat, stride or actions`},
		{format.JSON, "{\"programs\": [[{\"actions\": [[\"F\",0,0]], \"segments\": []}]]}", `1:41: found an unknown field "segments", expected repeat, stride or actions`},
		{format.JSON, "{\"programs\": [[{\"segments\": [{\"repeat\": 33554433, \"actions\": [[\"F\",0,0]]}]}]]}", `1:29: found nested loops of 33554433 actions a repeat, expected at most 33554432`},
		{format.JSON, "{\"programs\": [[{\"repeat\": 1}]]}", `1:28: found "}", expected the repeat and the actions of the segment before it`},
		{format.JSON, "{\"programs\": [[{\"actions\": [[\"F\",0,0]]}]]}", `1:39: found "}", expected the repeat and the actions of the segment before it`},
		{format.JSON, "{\"programs\": [[{\"steps\": 1}]]}", `1:17: found an unknown field "steps", expected repeat, stride or actions`},
		{format.JSON, head + tail + "x", `2:79: found something behind the plan, expected the end of the text`},
		{format.JSON, head + tail + " 1", `2:80: found something behind the plan, expected the end of the text`},
		{format.JSON, head + "\"copies\": 2, " + tail, `found "}", expected copies that divide the 1 stages before it`},
		{format.JSON, head + "\"frozen\": [1], " + tail, `found "}", expected frozen stages, ascending, from 0 to 0 before it`},
		{format.JSON, head + "\"away\": [[0], []], " + tail, `found "}", expected 1 away before it, found 2`},
		{format.JSON, head + "\"away\": [[64]], " + tail, `found 64, expected a slot of saved state as a whole number from 0 to 63`},
		{format.JSON, head + "\"windows\": [], " + tail, `found "}", expected 1 windows before it, found 0`},
		{format.JSON, head + "\"entries\": [1,2], " + tail, `found "}", expected 1 entries before it, found 2`},
		{format.JSON, head + "\"costs\": 7, " + tail, `2:11: found 7, expected an object, {`},
		{format.JSON, head + "\"costs\": {\"schema\": 1,\n\"stages\": [{},\n {\"F\": 7}]}, " + tail, `4:3: found an unknown field "F", expected f, i, w,`},
		{format.JSON, head + "\"costs\": {\"schema\": 1, \"stages\": []}, " + tail, `2:11: found invalid costs: schedule: invalid costs: there are costs of 0 stages`},
		{format.JSON, head + "\"costs\": {\"schema\" 1}, " + tail, `2:21: found "1", expected a colon`},
		{format.JSON, strings.Replace(head, "[0]", "[1]", 1) + tail, `found "}", expected a placement on ranks 0 to 0 before it`},
		{format.JSON, strings.Replace(head, "[0]", "[]", 1) + tail, `found "}", expected a placement of 1 to 16384 stages before it`},
	} {
		_, err := format.Read(strings.NewReader(test.text), format.Options{Name: "FILE", Format: test.format})
		require.ErrorIs(t, err, format.ErrFormat, test.text)
		require.ErrorContains(t, err, test.want)
		require.NotContains(t, err.Error(), "\n")
		place, ok := errors.AsType[*format.Error](err)
		require.True(t, ok, test.text)
		require.Equal(t, fmt.Sprintf("format: invalid plan file: FILE:%d:%d: %s", place.Line, place.Column, place.Text), err.Error())
	}
	for body, want := range map[string]string{
		`7`:                                   `1:26: found 7, expected a list of actions, [, as in schema 2`,
		`"0F0"`:                               `1:26: found "0F0", expected a list of actions, [, as in schema 2`,
		`[]`:                                  `1:27: found no actions, expected an action such as ["F",2,0]`,
		`["F",0,0]`:                           `1:27: found "F", expected an action such as ["F",2,0]`,
		`[[]]`:                                `1:28: found ], expected a kind such as "F"`,
		`[[7,0,0]]`:                           `1:28: found 7, expected a kind such as "F"`,
		`[["X",0,0]]`:                         `1:28: found "X", expected a kind such as "F"`,
		`[["F"]]`:                             `1:31: found ], expected a stage as a whole number from 0 to 16383`,
		`[["F","0",0]]`:                       `1:32: found "0", expected a stage`,
		`[["F",16384,0]]`:                     `1:32: found 16384, expected a stage`,
		`[["F",0]]`:                           `1:33: found ], expected a microbatch as a whole number from 0 to 268435455`,
		`[["F",0,null]]`:                      `1:34: found null, expected a microbatch`,
		`[["F",0,-1]]`:                        `1:34: found -1, expected a microbatch`,
		`[["F",0,0,1]]`:                       `1:36: found 1, expected a lifetime that F can end, each at most once: entry, input, output, gradient, saved, sent`,
		`[["F",0,0,"carry"]]`:                 `1:36: found "carry", expected a lifetime that F can end`,
		`[["W",0,0,"saved"]]`:                 `1:36: found "saved", expected a lifetime that W can end, each at most once: entry, input, output, gradient, carry, sent`,
		`[["WAIT_OFFLOAD",0,0,"saved"]]`:      `1:47: found "saved", expected a lifetime that WAIT_OFFLOAD can end, each at most once: entry, input, output, gradient, near`,
		`[["F",0,0,"input","input"]]`:         `1:44: found "input", expected a lifetime`,
		`[["F",0,0,["input"]]]`:               `1:36: found [, expected a lifetime`,
		`[["F",0,0],{"F":0}]`:                 `1:37: found {, expected an action`,
		`[[["F",0,0]]]`:                       `1:37: found ], expected the second action of a joined pair, [`,
		`[[["F",0,0],["B",0,0],["W",0,0]]]`:   `1:48: found [, expected the end of a joined pair, ]`,
		`[[[["F",0,0],["B",0,0]],["W",0,0]]]`: `1:29: found [, expected a kind`,
		`[["F",0,0] ["B",0,0]]`:               `1:37: found "[\"B\"", expected the rest of a valid value`,
		`[["F",0,0`:                           `1:35: found the end of the text, expected more of the plan`,
	} {
		_, err := format.Read(strings.NewReader(`{"programs":[[{"actions":`+body), format.Options{Name: "FILE", Format: format.JSON})
		require.ErrorContains(t, err, "FILE:"+want, body)
	}
	_, err := format.Read(strings.NewReader("hello"), format.Options{})
	require.ErrorContains(t, err, `format: invalid plan file: line 1:1: found "hello"`)
	_, err = format.Read(strings.NewReader("{\"placement\": ["+strings.Repeat("0,", schedule.MaxStages)+"7]}"), format.Options{})
	require.ErrorContains(t, err, "found one more value, expected at most 16384")
	many := strings.Repeat("0F0\n", schedule.MaxStages+1)
	_, err = format.Read(strings.NewReader(many), format.Options{})
	require.ErrorContains(t, err, "line 16385:1: found line 16385, expected at most 16384 ranks")
	_, err = format.Read(strings.NewReader("0F0\n1F0\n"), format.Options{Ranks: 1})
	require.ErrorContains(t, err, "line 2:1: found a line for rank 1, expected 1 ranks, as in the options")
	_, err = format.Read(strings.NewReader("1 -1\n"), format.Options{Ranks: 2})
	require.ErrorContains(t, err, "line 2:1: found the end of the file, expected a line for rank 1")
}

// TestRefusals: each form refuses what it cannot express, and writes nothing.
func TestRefusals(t *testing.T) {
	const two = `weir plan 1 name "two" mode training ranks 2 stages 2 microbatches 2 placement 0 1 frozen none rank 0: `
	const one = `weir plan 1 name "one" mode training ranks 1 stages 1 microbatches 2 placement 0 frozen none rank 0: x 1 +0: `
	for _, test := range []struct {
		format     format.Format
		text, want string
	}{
		{format.Auto, one + "0F0", "a plan cannot be written as auto"},
		{format.Compute, one + "0F0 0OFFLOAD0", "compute: 0OFFLOAD0 on rank 0 has a kind that PyTorch does not have"},
		{format.Compute, one + "0F0 0F1&", "the last action of rank 0 is joined, but no action follows it"},
		{format.Compute, one + "0F0& 0F1& 0B0", "0F1 on rank 0 is in a joined group that is not a pair of computations"},
		{format.Compute, one + "0F0& 0SEND_F0 0B0", "0SEND_F0 on rank 0 is in a joined group that is not a pair of computations"},
		{format.Compute, one + "0REDUCE_GRAD", "compute: the plan has no actions that the form lists"},
		{format.Compute, one + "0F0 0F1 0B0 0W1", "compute: the plan has B and W and no I, which would be read as the letters of 2024"},
		{format.Comms, one + "0F0 0F1 0B0 0W1", "comms: the plan has B and W and no I"},
		{format.Comms, one + "0UNSHARD& 0F0", "0UNSHARD on rank 0 is in a joined group"},
		{format.Comms, two + "x 1 +0: 0F0 rank 1: x 1 +0: 1F0", "comms: the plan has stages on several ranks and no transfers: give it to lower.Transfers first"},
		{format.Order, two + "x 1 +0: 0F0 0OPTIMIZER rank 1:", "order: 0OPTIMIZER on rank 0 is of a kind that the list cannot express"},
		{format.Order, strings.Replace(two, "0 1", "1 0", 1) + "rank 1:", "order: stage 0 is on rank 1, and the list would put it on rank 0"},
		{format.Order, strings.Replace(two, "placement", "copies 2 placement", 1) + "rank 1:", "order: the list numbers the stages of one model, and the plan has 2 copies"},
		{format.Order, strings.Replace(two, "none", "1", 1) + "rank 1:", "order: stage 1 is frozen, which the list cannot express"},
		{format.Order, two + "x 1 +0: 1F0 rank 1:", "1F0 on rank 0 is of a stage that the rank does not have"},
		{format.Order, two + "x 1 +0: 2F0 rank 1:", "2F0 on rank 0 is of a stage that the rank does not have"},
		{format.Order, one + "0F0 0F1 0B1 0B0", "0B1 on rank 0 comes where the list counts microbatch 0: the microbatches of a stage must ascend"},
		{format.Order, one[:len(one)-len("x 1 +0: ")] + "x 9999 +1: 0F0 x 1 +0: 0F0", "0F0 on rank 0 comes where the list counts microbatch 9999"},
		{format.Order, one + "0F0& 0F1", "0F0 on rank 0 is joined with the next action"},
		{format.Order, one + "0F0 0B0 0F1 0I1", "stage 0 has both B and I, and the list has only one of them for a stage"},
		{format.Order, one + "0F0 0I0", "stage 0 has I without W or W without I"},
		{format.Order, one + "0F0 0B0 0W0", "stage 0 has I without W or W without I"},
		{format.JSON, one + "0F0& 0F1& 0B0", "plan: 0F1 on rank 0 is in a joined group that is not a pair in one segment"},
		{format.JSON, one + "0F0 0F1& x 1 +0: 0B0", "plan: 0F1 on rank 0 is in a joined group that is not a pair in one segment"},
	} {
		p := read(t, test.text, format.Options{}).Plan
		var b strings.Builder
		err := format.Write(&b, p, test.format)
		require.ErrorIs(t, err, format.ErrRefused, test.text)
		require.ErrorContains(t, err, test.want)
		require.Empty(t, b.String())
	}
	p := read(t, one+"0F0", format.Options{}).Plan
	p.Name = "\xff"
	require.ErrorIs(t, format.Write(io.Discard, p, format.JSON), format.ErrRefused)
	for _, f := range []format.Format{format.Compute, format.Comms, format.Order, format.JSON} {
		broken := *p
		broken.Placement.Copies = 2
		require.ErrorIs(t, format.Write(io.Discard, &broken, f), format.ErrRefused)
		broken = *p
		broken.Programs = nil
		require.ErrorIs(t, format.Write(io.Discard, &broken, f), format.ErrRefused)
	}
}

// FuzzRead requires that everything read can be written: as the same bytes, and from the
// plan as a file that gives the same plan.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"0F0,,0B0\r\n,1F0,1B0\r\n", "0F0,(0F1;0B0)OVERLAP_F_B,0W1\n", "0F0,0SEND_F0,0RECV_B0,0BW0\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\n",
		"0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n", "0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD",
		"0UNSHARD,0F0,0REDUCE_GRAD", "0REDUCE_GRAD", "[1, 2, -2, -2.5, -1]\n[1 -1]\n", "[[1,\n -1], [1, -1.5]]", "\ufeff\"0F0\",\"(0F1;0B0)OVERLAP_F_B\",0W1\n", "weir plan 1 name \"\" mode training ranks 1 stages 1 microbatches 1 placement 0 frozen none rank 0: x 1 +0: 0F0",
		"weir plan 1 name \"\" mode training ranks 1 stages 1 microbatches 12 placement 0 frozen none rank 0: x 3 +4: ( x 4 +1: 0F0 x 1 +0: 0B0 0B1 x 2 +1: 0B2 )",
		"{\"schema\": 2, \"name\": \"n\", \"mode\": \"training\", \"ranks\": 1, \"placement\": [0], \"microbatches\": 6, \"programs\": [[{\"repeat\": 3, \"stride\": 2, \"segments\": [{\"repeat\": 2, \"stride\": 1, \"actions\": [[\"F\",0,0], [\"B\",0,0,\"saved\"]]}]}]]}",
		`{"schema": 2, "name": "n", "mode": "training", "ranks": 1, "placement": [0], "microbatches": 2, "programs": [[{"repeat": 1, "stride": 0, "actions": [["UNSHARD",0,null], [["F",0,0,"entry","input"],["\u0042",0,1,"gradient"]], ["W",0,1,"carry","microbatch"], ["WAIT_OFFLOAD",0,0,"near"]]}]]}`,
		"{\"schema\": 1, \"name\": \"n\", \"mode\": \"training\", \"ranks\": 1, \"placement\": [0], \"microbatches\": 2, \"costs\": {}, \"frozen\": [0], \"windows\": [1], \"programs\": [[{\"repeat\": 2, \"stride\": 1, \"actions\": \"0F0~p& 0B0\"}]]}",
	} {
		for hint := range 7 {
			f.Add([]byte(seed), hint)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, hint int) {
		file, err := format.Read(bytes.NewReader(data), format.Options{Format: format.Format(hint & 7), OldSchema: true})
		if err != nil {
			require.ErrorIs(t, err, format.ErrFormat)
			return
		}
		var same bytes.Buffer
		_, err = file.WriteTo(&same)
		require.NoError(t, err)
		require.Equal(t, data, same.Bytes())
		for rank, program := range file.Plan.Programs {
			line, column := file.LineColumn(rank, int64(len(program)))
			require.True(t, line >= 1 && column >= 1)
		}
		if _, line, column, ok := file.Outlier(); ok {
			require.True(t, line >= 1 && column >= 1)
		}
		for _, form := range []format.Format{file.Format, format.JSON} {
			var b strings.Builder
			if err := format.Write(&b, file.Plan, form); err != nil {
				require.ErrorIs(t, err, format.ErrRefused)
				continue
			}
			back, err := format.Read(strings.NewReader(b.String()), format.Options{Format: form,
				Ranks: len(file.Plan.Programs), Stages: file.Plan.Placement.Stages(), Microbatches: file.Plan.Microbatches})
			require.NoError(t, err, b.String())
			if has := file.Plan.Kinds(); form != format.Compute || !has[schedule.ReduceGrad] && !has[schedule.WaitReduce] { // PyTorch lists them, and does not read them
				require.Equal(t, file.Plan.Programs, back.Plan.Programs)
				require.Equal(t, file.Plan.Placement, back.Plan.Placement)
			}
			require.Equal(t, b.String(), written(t, back.Plan, form))
		}
	})
}

// TestFixtures compares plans in JSON with those that earlier versions wrote. weir convert reads schema 1.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "plan-%d.json", Mark: "{\n  \"schema\": %d", Number: 2, Older: []int{1}, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			plan := plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
			facts := []schedule.StageInfo{{Split: true}, {Split: true}}
			facts[0].Reads[schedule.F], facts[1].Reads[schedule.I] = 1, 2
			plan, err := lower.Prepare(plan, lower.Passes{StageInfo: facts, Parts: 2, Capacity: 1})
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, format.WriteJSON(&text, plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}, {F: 2, I: 2, W: 2}}}))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := format.Read(bytes.NewReader(text), format.Options{OldSchema: true})
			return err
		},
	}.Test(t)
}

// TestTooManyActions: the first action beyond the limit is refused in every form, and CSV files and order
// lists at the limit are read.
func TestTooManyActions(t *testing.T) {
	testkit.Slow(t)
	const most = schedule.MaxWritten
	csv := strings.Repeat("0F0,", most-1) + "0F0"
	header := "weir plan 1\nname \"x\"\nmode training\nranks 1\nstages 1\nmicrobatches 1\nplacement 0\nfrozen none\nrank 0:\nx 1 +0: "
	begin := `{"schema":2,"name":"x","mode":"training","ranks":1,"placement":[0],"microbatches":1,"programs":[[{"repeat":1,"stride":0,"actions":[`
	for name, c := range map[string]struct{ text, more string }{
		"compute": {csv, ",0F0"},
		"comms":   {csv + ",", "0F0"},
		"order":   {strings.Repeat("1 ", most), "1"},
		"text":    {header + strings.Repeat("0F0 ", most), "0F0"},
		"plan":    {begin + strings.Repeat(`["F",0,0],`, most), `["F",0,0]]}]]}`},
	} {
		form, _ := format.Parse(name)
		if name == "compute" || name == "order" {
			f, err := format.Read(strings.NewReader(c.text), format.Options{Format: form})
			require.NoError(t, err, name)
			require.Len(t, f.Plan.Programs[0][0].Body, most, name)
		}
		_, err := format.Read(strings.NewReader(c.text+c.more), format.Options{Format: form})
		require.ErrorIs(t, err, format.ErrFormat, name)
		require.ErrorContains(t, err, fmt.Sprintf("expected at most %d", most), name)
	}
}

// TestTooManyActionsToWrite: a plan with more actions than a file may have is refused before
// they are written out.
func TestTooManyActionsToWrite(t *testing.T) {
	const m = schedule.MaxWritten + 1
	plan := &schedule.Plan{Name: "long", Mode: schedule.ForwardOnly, Placement: schedule.Looped(1, 1), Microbatches: m, Programs: [][]schedule.Segment{
		{{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 0)}, Repeat: m, Stride: 1}},
	}}
	for _, form := range []format.Format{format.Compute, format.Comms, format.Order} {
		var out strings.Builder
		require.ErrorIs(t, format.Write(&out, plan, form), format.ErrRefused)
		require.Empty(t, out.String())
	}
	require.NoError(t, format.Write(io.Discard, plan, format.JSON))
}
