package layout_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// TestReadWhatWasWritten reads a profile back.
func TestReadWhatWasWritten(t *testing.T) {
	profile := model(3, 2, 16, 5, 9)
	profile.StageInfo = facts(schedule.Looped(1, 3), true)
	profile.StageInfo[1].Frozen = true
	profile.Shapes[1].Stages[0].Buffers[0].AtMost = true
	profile.Params[1][0].Frozen = true
	var text bytes.Buffer
	require.NoError(t, layout.Write(&text, profile))
	read, err := layout.Read(bytes.NewReader(text.Bytes()))
	require.NoError(t, err)
	var again bytes.Buffer
	require.NoError(t, layout.Write(&again, read))
	require.Equal(t, text.String(), again.String())
	require.Equal(t, profile.StageInfo, read.StageInfo)
	require.Equal(t, profile.Shapes[1].Stages, read.Shapes[1].Stages)
}

type named struct{ *strings.Reader }

func (named) Name() string { return "model.json" }

// TestFaultsHaveAPlace checks the location of faults in a text.
func TestFaultsHaveAPlace(t *testing.T) {
	for text, want := range map[string]string{
		``:                            "model.json:1:1: found the end of the text",
		`[]`:                          "model.json:1:1: found [, expected an object",
		`{"schema": 2, "new": 3}`:     "model.json:1:12: found 2, expected the schema 1",
		"{\n \"what\": 1}":            "model.json:2:2: found an unknown field",
		`{"shapes": []}`:              "model.json:1:1: found no schema",
		`{"schema": 1, "schema": 1}`:  `model.json:1:15: found "schema", which is there already`,
		`{"schema": 1} x`:             "model.json:1:15: found something behind the profile",
		`{"schema": 1, "parts": [1]}`: "model.json:1:25: found 1, expected a string",
		`{"schema": 1, "params": [[{"bytes": -1}]]}`:                                       `parameter 0 ("") of stage 0 has -1 bytes`,
		`{"schema": 1, "facts": [{"split": 1}]}`:                                           "found 1, expected true or false",
		`{"schema": 1, "facts": [{"reads": {"X": []}}]}`:                                   "expected F, B, I or W",
		`{"schema": 1, "shapes": [{"stages": [{"buffers": [{"class": "x"}]}]}]}`:           `found "x", expected a class`,
		`{"schema": 1, "shapes": [{"stages": [{"forward": {"events": ["z1"]}}]}]}`:         `found "z1", expected an event`,
		`{"schema": 1, "shapes": [{"stages": [{"forward": {"events": ["a"]}}]}]}`:          `found "a", expected an event`,
		`{"schema": 1, "shapes": [{"stages": [{"forward": {"out": ["i01"]}}]}]}`:           `found "i01", expected a buffer`,
		`{"schema": 1, "shapes": [{"stages": [{"forward": {"taken": 5, "events": []}}]}]}`: "a call of 0 events has 5 ends of slots",
		`{"schema": 1}`: "there is no shape class",
	} {
		_, err := layout.Read(named{strings.NewReader(text)})
		require.ErrorIs(t, err, layout.ErrProfile, text)
		require.ErrorContains(t, err, want, text)
	}
}

// TestProfilesThatDoNotAddUp finds buffers that are never released, and buffers that are
// released too often.
func TestProfilesThatDoNotAddUp(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*layout.StageProfile)
		want   string
	}{
		"kept":        {func(t *layout.StageProfile) { t.Whole.Events = t.Whole.Events[:len(t.Whole.Events)-1] }, "is never released"},
		"twice":       {func(t *layout.StageProfile) { e := t.Eval; e.Events = append(e.Events, e.Events[len(e.Events)-1]) }, "once more than it is retained"},
		"born twice":  {func(t *layout.StageProfile) { f := t.Forward; f.Events = append(f.Events[:1:1], f.Events...) }, "already allocated"},
		"no bytes":    {func(t *layout.StageProfile) { t.Buffers[0].Bytes = 0 }, "has 0 bytes"},
		"what it has": {func(t *layout.StageProfile) { t.Buffers = t.Buffers[:1] }, "there is no buffer"},
	} {
		profile := model(3, 1, 16, 5)
		c.change(&profile.Shapes[0].Stages[1])
		err := profile.Validate()
		require.ErrorIs(t, err, layout.ErrProfile, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// FuzzRead expects a profile that can be written, or an error.
func FuzzRead(f *testing.F) {
	var text bytes.Buffer
	require.NoError(f, layout.Write(&text, model(1, 1, 1, 1)))
	f.Add(text.Bytes())
	f.Add([]byte(`{"schema": 1, "shapes": [{"name": "x", "entries": [{"parts":[0],"events":["a0"]}], "stages": [{"forward":{"events":["a0","-0"],"taken":1,"out":["p0"]}}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		profile, err := layout.Read(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, layout.ErrProfile)
			return
		}
		require.NoError(t, layout.Write(&bytes.Buffer{}, profile))
	})
}

// TestFixtures compares profiles with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "profile-%d.json", Mark: "\"schema\": %d", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			profile := model(2, 1, 16, 5)
			profile.StageInfo = facts(schedule.Looped(1, 2), true)
			profile.Params[1][0].Frozen = true
			var text bytes.Buffer
			require.NoError(t, layout.Write(&text, profile))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := layout.Read(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
