package schedule_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

func TestNames(t *testing.T) {
	for kind := schedule.None; int(kind) < schedule.NumKinds; kind++ {
		back, ok := schedule.ParseKind(kind.String())
		require.True(t, ok)
		require.Equal(t, kind, back)
		for _, mb := range []int{0, 7, schedule.MaxMicrobatches - 1} {
			action := schedule.NewAction(kind, schedule.MaxStages-1, mb)
			parsed, err := schedule.ParseAction(action.String())
			require.NoError(t, err)
			require.Equal(t, action, parsed)
		}
	}
	_, ok := schedule.ParseKind("BW")
	require.False(t, ok)
	require.Equal(t, "KIND(31)", schedule.Kind(31).String())

	for text, action := range map[string]schedule.Action{ // as PyTorch writes them
		"2F0": schedule.NewAction(schedule.F, 2, 0), "0B12": schedule.NewAction(schedule.B, 0, 12),
		"3SEND_F1": schedule.NewAction(schedule.SendF, 3, 1), "1RECV_B0": schedule.NewAction(schedule.RecvB, 1, 0),
		"3WAIT_F1": schedule.NewAction(schedule.WaitF, 3, 1), "1WAIT_B0": schedule.NewAction(schedule.WaitB, 1, 0),
		"1UNSHARD": schedule.NewAction(schedule.Unshard, 1, 0), "2REDUCE_GRAD": schedule.NewAction(schedule.ReduceGrad, 2, 0),
		"2ZERO_GRAD": schedule.NewAction(schedule.ZeroGrad, 2, 0), "0WAIT_REDUCE": schedule.NewAction(schedule.WaitReduce, 0, 0),
	} {
		require.Equal(t, text, action.WithDrop(schedule.Retire).WithJoin(true).String())
		parsed, err := schedule.ParseAction(text)
		require.NoError(t, err)
		require.Equal(t, action, parsed)
	}
	for _, text := range []string{"", "F", "F0", "2F", "2f0", "2F0 ", "2F-1", "2BW0", "2WAIT0", "16384F0", "0F268435456", "0F99999999999999999999", "0F0~s"} {
		_, err := schedule.ParseAction(text)
		require.ErrorIs(t, err, schedule.ErrText, text)
	}

	whole := schedule.NewAction(schedule.B, 1, 3).WithDrop(schedule.DropGrad | schedule.DropSaved).WithJoin(true)
	written, err := whole.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "1B3~gs&", string(written))
	appended, err := whole.AppendText([]byte("2F0 "))
	require.NoError(t, err)
	require.Equal(t, "2F0 1B3~gs&", string(appended))
	var back schedule.Action
	require.NoError(t, back.UnmarshalText(written))
	require.Equal(t, whole, back)
	err = back.UnmarshalText([]byte("1B3~"))
	require.ErrorIs(t, err, schedule.ErrText)
	require.EqualError(t, err, `schedule: invalid plan text: found "1B3~", expected drop letters out of piogstrfba after ~`)
	require.Equal(t, whole, back)

	require.Equal(t, "piogstr", (schedule.DropParts | schedule.DropInput | schedule.DropOutput | schedule.DropGrad |
		schedule.DropSaved | schedule.DropSent | schedule.Retire).String())
	require.Equal(t, "i?", (schedule.DropInput | 1<<15).String())
	require.Empty(t, schedule.Drop(0).String())
}

// TestTextIsExact demands that a plan's text is read as the same plan and written as the same text.
func TestTextIsExact(t *testing.T) {
	draws := []func(*rapid.T) (*schedule.Plan, []bool){plantest.DrawPipelined, plantest.DrawChunks, plantest.DrawList}
	rapid.Check(t, func(t *rapid.T) {
		p, split := draws[rapid.IntRange(0, 2).Draw(t, "draw")](t)
		p.Name = rapid.String().Draw(t, "name")
		facts := plantest.DrawFacts(t, p, split)
		p = plantest.Quantized(t, p, facts)
		if marked, err := lower.Lifetimes(p, facts, plantest.Parts); err == nil {
			p = marked
		}
		if rapid.Bool().Draw(t, "joined") {
			body := p.Programs[0][0].Body
			body[0] = body[0].WithJoin(true)
		}
		if rapid.Bool().Draw(t, "nested") {
			p = plantest.Nested(p, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		}
		if rapid.Bool().Draw(t, "no windows") {
			p.StageWindows = nil
		}
		if rapid.Bool().Draw(t, "outgoing") {
			p.SendWindows = make([]int, p.Placement.Stages())
			p.SendWindows[0] = rapid.IntRange(0, schedule.MaxMicrobatches).Draw(t, "first")
		}
		if rapid.Bool().Draw(t, "away") {
			p.OffloadSlots = make([]uint64, p.Placement.Stages())
			p.OffloadSlots[0] = rapid.Uint64().Draw(t, "slots")
		}
		if stages := p.Placement.Stages(); stages > 1 && rapid.Bool().Draw(t, "copies") {
			p.Placement.Copies = stages
		}
		if rapid.Bool().Draw(t, "sliced") {
			p.Slices = rapid.IntRange(2, schedule.MaxMicrobatches).Draw(t, "slices")
		}
		if len(p.Frozen) > 0 {
			p.Frozen[rapid.IntRange(0, len(p.Frozen)-1).Draw(t, "frozen")] = true // none is nil
		}
		written := plantest.Text(t, p)
		back, err := schedule.ParseText(strings.NewReader(written))
		require.NoError(t, err, written)
		require.Equal(t, p, back)
		require.Equal(t, written, plantest.Text(t, back))
	})
}

func TestTextIsForgiving(t *testing.T) {
	want, err := schedule.ParseText(strings.NewReader("weir plan 1\nname \"a b\"\nmode training\nranks 1\nstages 1\nmicrobatches 2\nplacement 0\nfrozen none\n\nrank 0:\nx 2 +1: 0F0 0B0\n"))
	require.NoError(t, err)
	got, err := schedule.ParseText(strings.NewReader("# by hand\r\nweir plan 1 name \"a b\" mode\ttraining ranks 1 stages 1 # one\nmicrobatches 2 placement 0 frozen none rank 0:\nx\n2\n+1:\n0F0 # forward\n0B0"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// The text form can express the largest numbers that a plan may have.
func TestTextOfLargestNumbers(t *testing.T) {
	p := plantest.Made(t, schedule.DepthFirst, schedule.Params{Placement: schedule.Looped(1, 1), Microbatches: schedule.MaxMicrobatches})
	facts := make([]schedule.StageInfo, 1)
	facts[0].Reads[schedule.F] = 1 << (schedule.MaxParts - 1)
	p, err := lower.Lifetimes(p, facts, schedule.MaxParts)
	require.NoError(t, err)
	require.NoError(t, check.Plan(p))
	back, err := schedule.ParseText(strings.NewReader(plantest.Text(t, p)))
	require.NoError(t, err)
	require.Equal(t, p, back)
}

func TestTextErrors(t *testing.T) {
	const good = "weir plan 1\nname \"n\"\nmode training\nranks 1\nstages 2\nmicrobatches 3\nplacement 0 0\nfrozen 1\n\n" +
		"stage 0: window=1 facts=- reads=F:0 drops=F:0\nstage 1: window=1 facts=frozen,split reads=- drops=-\n\nrank 0: entries=1\nx 3 +1: 0F0~p 1B0~gs&\n"
	_, err := schedule.ParseText(strings.NewReader(good))
	require.NoError(t, err)
	_, err = schedule.ParseText(strings.NewReader(strings.NewReplacer("microbatches 3\n", "microbatches 3 copies 2 slices 5 ",
		"facts=-", "outgoing=2 facts=-", "facts=frozen", "outgoing=0 facts=frozen").Replace(good)))
	require.NoError(t, err)
	for _, test := range []struct{ from, to, fault string }{
		{"weir", "wier", `line 1:1: found "wier", expected weir`},
		{"plan 1", "plan 2", `line 1:11: found "2", expected 1, the version of the form: read it with the version of Weir that wrote it, or write it again with this one`},
		{`"n"`, "n", `line 2:6: found "n", expected a name in double quotes`},
		{`"n"`, "`n`", "line 2:6: found \"`n`\", expected a name in double quotes"},
		{`"n"`, `"n`, `line 2:6: found "\"n", expected a name in double quotes`},
		{"training", "eval", `line 3:6: found "eval", expected training or forward-only`},
		{"ranks 1", "ranks 0", `line 4:7: found "0", expected a number of ranks from 1 to 16384`},
		{"stages 2", "stages 16385", `line 5:8: found "16385", expected a number of stages from 1 to 16384`},
		{"microbatches 3", "microbatches 268435457", `line 6:14: found "268435457", expected a number of microbatches from 1 to 268435456`},
		{"placement", "copies 1\nplacement", `line 7:8: found "1", expected a number of copies from 2 to 2`},
		{"stages 2\nmicrobatches 3\nplacement 0 0", "stages 3 microbatches 3 copies 2", `line 5:32: found "2", expected a number of copies that divides the 3 stages`},
		{"placement", "slices 1\nplacement", `line 7:8: found "1", expected a number of slices from 2 to 268435456`},
		{"placement", "slices 2 copies 2\nplacement", `line 7:10: found "copies", expected placement`},
		{"placement 0 0", "placement 0 1", `line 7:13: found "1", expected the rank of each stage, from 0 to 0`},
		{"placement 0 0", "placement 0", `line 8:1: found "frozen", expected the rank of each stage, from 0 to 0`},
		{"frozen 1", "frozen 2", `line 8:8: found "2", expected none, or the frozen stages, ascending, from 0 to 1`},
		{"frozen 1", "frozen 0 0", `line 8:10: found "0", expected none, or the frozen stages, ascending, from 1 to 1`},
		{"stage 1:", "stage 2:", `line 11:7: found "2:", expected the stages in order, from 1 to 1 and :`},
		{"stage 0:", "stage 0", `line 10:7: found "0", expected the stages in order, from 0 to 0 and :`},
		{"stage 0: window=1 facts=- reads=F:0 drops=F:0", "stage 0:", `line 11:1: found "stage", expected window=, outgoing=, away=, facts= or drops=`},
		{"stage 1: window=1 ", "stage 1: ", `line 11:10: found "facts=frozen,split", expected window=, as on the first of these lines`},
		{"facts=-", "outgoing=0 facts=-", `line 11:19: found "facts=frozen,split", expected outgoing=, as on the first of these lines`},
		{"facts=-", "outgoing= facts=-", `line 10:19: found "outgoing=", expected outgoing= and a number up to 268435456`},
		{"facts=-", "away=0,64 facts=-", `line 10:19: found "away=0,64", expected away=- or slots of saved state from 0 to 63, such as away=0,2`},
		{"facts=-", "away=1,1 facts=-", `line 10:19: found "away=1,1", expected away=-`},
		{"facts=-", "away=- facts=-", `line 11:19: found "facts=frozen,split", expected away=, as on the first of these lines`},
		{"window=1 facts=-", "window=-1 facts=-", `line 10:10: found "window=-1", expected window= and a number up to 268435456`},
		{"frozen,split", "split,frozen", `line 11:19: found "facts=split,frozen", expected facts=- or some of frozen,split,recomputes,quantizes in this order`},
		{"frozen,split", "", `line 11:19: found "facts=", expected facts=-`},
		{"frozen,split", "frozen,", `line 11:19: found "facts=frozen,", expected facts=-`},
		{"reads=F:0", "reads=F:64", `line 10:27: found "reads=F:64", expected reads=- or entry parts from 0 to 63 by kind, such as reads=F:0,1;B:2`},
		{"reads=F:0", "reads=F:0,0", `found "reads=F:0,0", expected reads=-`},
		{"reads=F:0", "reads=F:0;F:1", `found "reads=F:0;F:1", expected reads=-`},
		{"reads=F:0", "reads=F:0;", `found "reads=F:0;", expected reads=-`},
		{"reads=F:0", "reads=F:", `found "reads=F:", expected reads=-`},
		{"reads=F:0", "reads=X:0", `found "reads=X:0", expected reads=-`},
		{"drops=F:0", "", `line 11:46: found "drops=-", expected rank`},
		{"drops=-", "", `line 13:1: found "rank", expected drops=, as on the first of these lines`},
		{"rank 0:", "rank 1:", `line 13:6: found "1:", expected the ranks in order, from 0 to 0 and :`},
		{"entries=1", "entries=x", `line 13:9: found "entries=x", expected entries= and a number`},
		{"x 3", "x 0", `line 14:3: found "0", expected a repeat from 1 to 268435456`},
		{"x 3", "y 3", `line 14:1: found "y", expected a segment, x, or the end of the text behind the last rank`},
		{"+1:", "1:", `line 14:5: found "1:", expected a stride with its sign, from -268435456: to +268435456:`},
		{"+1:", "+1", `line 14:5: found "+1", expected a stride with its sign`},
		{"+1:", "-268435457:", `line 14:5: found "-268435457:", expected a stride with its sign`},
		{"0F0~p 1B0~gs&", "", `line 15:1: found the end of the text, expected the actions of the segment`},
		{"0F0~p", "0G0~p", `line 14:9: found "0G0~p", expected an action such as 2F0 or 1SEND_F3: stage, kind, microbatch`},
		{"0F0~p 1B0~gs&", "( )", `line 14:11: found ")", expected the segments of a loop, such as x 4 +1: 0F0`},
		{"0F0~p 1B0~gs&", "(", `line 15:1: found the end of the text, expected the segments of a loop`},
		{"0F0~p 1B0~gs&", "( x 2 +1: 0F0", `line 15:1: found the end of the text, expected )`},
		{"0F0~p 1B0~gs&", "( x 2 +1: ( x 2 +1: 0F0 ) )", `line 14:19: found "(", expected the actions of the segment`},
		{"0F0~p 1B0~gs&", "( x 33554433 +1: 0F0 )", `line 14:30: found ")", expected the loops of loops to have at most 33554432 actions a repeat`},
		{"0F0~p 1B0~gs&", "( x 20000000 +1: 0F0 ) x 3 +1: ( x 20000000 +1: 0F0 )", `line 14:61: found ")", expected the loops of loops`},
		{"0F0~p", "16384F0", `line 14:9: found "16384F0", expected a stage from 0 to 16383`},
		{"0F0~p", "0F268435456", `line 14:9: found "0F268435456", expected a microbatch from 0 to 268435455`},
		{"0F0~p", "0F0~pp", `line 14:9: found "0F0~pp", expected drop letters out of piogstrfba, each at most once`},
		{"0F0~p", "0F0~x", `line 14:9: found "0F0~x", expected drop letters out of piogstrfba`},
		{"0F0~p", "0F0~", `line 14:9: found "0F0~", expected drop letters out of piogstrfba after ~`},
		{"0F0~p", "0F1" + strings.Repeat("0", 60), `line 14:9: found "0F10000000000000000000000000000000000000...", expected a microbatch`},
	} {
		require.Contains(t, good, test.from)
		_, err := schedule.ParseText(strings.NewReader(strings.Replace(good, test.from, test.to, 1)))
		require.ErrorIs(t, err, schedule.ErrText, "%q for %q", test.to, test.from)
		require.ErrorContains(t, err, test.fault)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err = schedule.ParseText(strings.NewReader(good + "more"))
	require.ErrorContains(t, err, `line 15:1: found "more", expected a segment`)
}

// ParseTextAt calls its function with the offset of every action, and a fault has its line and column.
func TestTextPlaces(t *testing.T) {
	const written = "weir plan 1 name \"n\" mode training ranks 2 stages 2 microbatches 3 placement 0 1 frozen none\n" +
		"rank 0:\nx 3 +1: (\nx 1 +0: 0F0~r\n  # a comment 0F1\n 0B0 )\nrank 1:\nx 1 +0: 1F0& 1B0\n"
	var words []string
	p, err := schedule.ParseTextAt(strings.NewReader(written), func(offset int) {
		words = append(words, strings.Fields(written[offset:])[0])
	})
	require.NoError(t, err)
	require.Equal(t, []string{"0F0~r", "0B0", "1F0&", "1B0"}, words)
	again, err := schedule.ParseText(strings.NewReader(written))
	require.NoError(t, err)
	require.Equal(t, again, p)

	_, err = schedule.ParseText(strings.NewReader(strings.Replace(written, "1B0", "1X0", 1)))
	var fault interface {
		LineColumn() (line, column int)
		Fault() string
	}
	require.ErrorAs(t, err, &fault)
	line, column := fault.LineColumn()
	require.Equal(t, [2]int{8, 14}, [2]int{line, column})
	require.Equal(t, `found "1X0", expected an action such as 2F0 or 1SEND_F3: stage, kind, microbatch`, fault.Fault())
}

// Errors contain the name of the file. ParseText fails if it cannot read the text or the text is too long, and
// WriteText if it cannot write or the plan has no text form.
func TestTextStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.txt")
	require.NoError(t, os.WriteFile(path, []byte("weir\n  cat"), 0o644))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	_, err = schedule.ParseText(file)
	require.ErrorContains(t, err, path+`:2:3: found "cat", expected plan`)

	lost := errors.New("lost")
	_, err = schedule.ParseText(iotest.ErrReader(lost))
	require.ErrorIs(t, err, lost)
	_, err = schedule.ParseText(io.LimitReader(plantest.Endless{}, schedule.MaxText+10))
	require.ErrorIs(t, err, schedule.ErrText)
	require.ErrorContains(t, err, "longer than 67108864 bytes")

	p := plantest.Plan(t, 2, plantest.TwoStages+plantest.TwoProgram)
	require.ErrorIs(t, p.WriteText(plantest.Full{}), io.ErrShortWrite)
	for want, spoil := range map[string]func(p *schedule.Plan){
		"0KIND(31)0 on rank 0 has a kind": func(p *schedule.Plan) { p.Programs[0][0].Body[0] = schedule.NewAction(31, 0, 0) },
		"0F0 on rank 0 has a kind or a drop without a name": func(p *schedule.Plan) {
			p.Programs[0][0].Body[0] = schedule.NewAction(schedule.F, 0, 0).WithDrop(1 << 15)
		},
		"unknown mode":                   func(p *schedule.Plan) { p.Mode = 5 },
		"3 copies do not share 2 stages": func(p *schedule.Plan) { p.Placement.Copies = 3 },
		"SendWindows has 1 entries":      func(p *schedule.Plan) { p.SendWindows = []int{1} },
		"StageWindows has 1 entries":     func(p *schedule.Plan) { p.StageWindows = p.StageWindows[:1] },
		"Programs has 0 entries":         func(p *schedule.Plan) { p.Programs = nil },
	} {
		p := plantest.Plan(t, 2, plantest.TwoStages+plantest.TwoProgram)
		spoil(p)
		err := p.WriteText(io.Discard)
		require.ErrorIs(t, err, schedule.ErrText)
		require.ErrorContains(t, err, want)
	}
}

// FuzzParseText demands that every plan that is read is written and read again as the same plan, and that check.Plan
// returns if the plan is not too large.
func FuzzParseText(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.txt")
	require.NoError(f, err)
	require.NotEmpty(f, paths)
	for _, path := range paths {
		seed, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(seed)
	}
	var ranks strings.Builder
	require.NoError(f, plantest.OneFOneB(2, 2, 0, 3, true).WriteText(&ranks))
	f.Add([]byte(ranks.String()))
	f.Add([]byte("weir plan 1 name \"n\" mode training ranks 1 stages 1 microbatches 12 placement 0 frozen none rank 0: x 3 +4: ( x 4 +1: 0F0 x 1 +0: 0B0 0B1 x 2 +1: 0B2 )"))

	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := schedule.ParseText(bytes.NewReader(data))
		if err != nil {
			require.ErrorIs(t, err, schedule.ErrText)
			return
		}
		written := plantest.Text(t, p)
		back, err := schedule.ParseText(strings.NewReader(written))
		require.NoError(t, err)
		require.Equal(t, p, back)
		for rank := range p.Programs {
			if p.Actions(rank) > 10_000 {
				return
			}
		}
		if err := check.Plan(p); err == nil {
			_ = check.Plan(plantest.Expand(p))
		} else {
			require.ErrorIs(t, err, check.ErrInvalidPlan)
		}
	})
}

// TestFixtures compares the text form with the output of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "plan-%d.txt", Mark: "weir plan %d\n", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			plan := plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
			facts := []schedule.StageInfo{{Split: true}, {Split: true}}
			facts[0].Reads[schedule.F], facts[1].Reads[schedule.I] = 1, 2
			plan, err := lower.Prepare(plan, lower.Passes{StageInfo: facts, Parts: 2, Capacity: 1})
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, plan.WriteText(&text))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := schedule.ParseText(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
