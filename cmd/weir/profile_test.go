package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// profileFile applies edits to the two-stage profile from docs/placement, and writes it to a file.
func profileFile(t *testing.T, edits ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "profile.json")
	text := testkit.Read(t, filepath.Join("..", "..", "docs", "placement", "profile.json"))
	edited := strings.NewReplacer(edits...).Replace(text)
	require.Equal(t, len(edits) == 0, text == edited, "%q", edits)
	require.NoError(t, os.WriteFile(name, []byte(edited), 0o600))
	return name
}

// Each fault in a profile is reported on its own line, which begins with the name of the file.
func TestTemplatesAtFault(t *testing.T) {
	for _, c := range []struct {
		edits []string
		want  string // the lines, without the name of the file
	}{
		{[]string{`"taken":1}`, `"taken":true}`},
			":24:55: found true, expected a whole number\n"},
		{[]string{`"+i0","a1","-1"]`, `"+i0","a1"]`, `"a2","-2","-0"]`, `"a2","-2","-0","-8"]`},
			`: shape class "2048 tokens": stage 0 (bottom): F and B: event 3 releases buffer 8 once more than it is retained` + "\n" +
				`: shape class "2048 tokens": stage 1 (top): F and B: event 0 allocates buffer 1, which the call does not own or has already allocated` + "\n"},
		{[]string{`"reads":{"F":[0]}`, `"reads":{"F":[0,3]}`},
			": stage 0 reads a part at F that is not one of the 1 parts of an entry\n"},
		{[]string{"},\n    {}\n", "}\n"},
			": the file has facts about 1 stages, but its profile has 2\n"},
		{[]string{`"a0","a1"],"out":["1"]`, `"a0","a1","-1"]`},
			": rank 1, 1F0: it refers to input 0, which is not allocated\n"},
	} {
		file := profileFile(t, c.edits...)
		want := ""
		for line := range strings.Lines(c.want) {
			want += file + line
		}
		commands := [][]string{
			{"mem", "plan", "1f1b", "--ranks", "2", "--profile", file},
			{"mem", "export", "1f1b", "--ranks", "2", "--profile", file, "-o", filepath.Join(t.TempDir(), "out.json")},
		}
		for _, args := range commands {
			stdout, stderr, status := weir("", args...)
			require.Equal(t, want, stderr)
			require.Equal(t, misused, status)
			require.Empty(t, stdout)
		}
	}
}

// A profile whose number of stages differs from that of the plan is rejected. The error suggests parameters
// that fit.
func TestTemplatesOfOtherStages(t *testing.T) {
	file := profileFile(t)
	fits := func(stderr string) {
		t.Helper()
		_, advice, found := strings.Cut(strings.TrimSpace(stderr), "give ")
		require.True(t, found, stderr)
		name, _, _ := strings.Cut(strings.TrimPrefix(stderr, "weir: "+file+": the profile has 2 stages, but "), " ")
		_, stderr, status := weir("", append([]string{"mem", "plan", name, "--profile", file}, strings.Fields(advice)...)...)
		require.Equal(t, good, status, stderr)
	}
	for _, c := range []struct{ args, want string }{
		{"1f1b --ranks 3", "1f1b on 3 ranks has 3: give --ranks 2"},
		{"1f1b", "1f1b on 4 ranks has 4: give --ranks 2"},
		{"1f1b --ranks 2 --stages 4", "1f1b on 2 ranks has 4: give --ranks 2 --stages 2"},
		{"zb-v --ranks 3", "zb-v on 3 ranks has 6: give --ranks 1"},
		{"interleaved", "interleaved on 4 ranks has 8: give --ranks 2"},
		{"dualpipe --ranks 4", "dualpipe on 4 ranks has 4: give --ranks 2"},
		{"depth-first --ranks 2 --stages 3", "depth-first on 2 ranks has 3: give --ranks 2 --stages 2"},
	} {
		_, stderr, status := weir("", append([]string{"mem", "plan", "--profile", file}, strings.Fields(c.args)...)...)
		require.Equal(t, "weir: "+file+": the profile has 2 stages, but "+c.want+"\n", stderr)
		require.Equal(t, misused, status)
		fits(stderr)
	}

	_, stderr, status := weir("", "mem", "plan", "breadth-first", "--profile", file, "--ranks", "2", "--placement", "0,1,1")
	require.Equal(t, "weir: "+file+": the profile has 2 stages, but breadth-first has 3: give a --placement of 2 stages\n", stderr)
	require.Equal(t, misused, status)
	three := filepath.Join(t.TempDir(), "three.json")
	require.NoError(t, os.WriteFile(three, []byte(`{"schema": 1, "shapes": [{"stages": [{}, {}, {}]}]}`), 0o600))
	_, stderr, status = weir("", "mem", "plan", "zb-v", "--profile", three)
	require.Equal(t, "weir: "+three+": the profile has 3 stages, but zb-v on 4 ranks has 8: no number of ranks gives it 3, use another schedule\n", stderr)
	require.Equal(t, misused, status)
	plan, stderr, status := weir("", "plan", "1f1b", "--ranks", "3")
	require.Equal(t, good, status, stderr)
	_, stderr, status = weir(plan, "mem", "plan", "-", "--profile", file)
	require.Equal(t, "weir: "+file+": the profile has 2 stages, but the plan has 3: use another profile or another plan\n", stderr)
	require.Equal(t, misused, status)
}

// The profile given with --recompute is checked like the one given with --profile.
func TestTemplatesThatRecompute(t *testing.T) {
	file := profileFile(t)
	whatIf := func(other string) (stderr string, status int) {
		_, stderr, status = weir("", "mem", "plan", "1f1b", "--ranks", "2", "--profile", file, "--what-if", "--recompute", other)
		return stderr, status
	}
	one := filepath.Join(t.TempDir(), "one.json")
	require.NoError(t, os.WriteFile(one, []byte(`{"schema": 1, "shapes": [{"stages": [{}]}]}`), 0o600))
	stderr, status := whatIf(one)
	require.Equal(t, "weir: "+one+": the profile has 1 stage, but the plan has 2: give --recompute a profile with the same stages\n", stderr)
	require.Equal(t, misused, status)
	wrong := profileFile(t, `"-2","-0"]`, `"-2","-0","-8"]`)
	stderr, status = whatIf(wrong)
	require.Equal(t, wrong+`: shape class "2048 tokens": stage 0 (bottom): F and B: event 3 releases buffer 8 once more than it is retained`+"\n", stderr)
	require.Equal(t, misused, status)
}

// For a model's profile, fit and mem plan state the same bytes for the same plan, whose gradients appear with
// the first B or W of their stage.
func TestFitAndMemPlanAgreeOnProfiles(t *testing.T) {
	const profile = "../../docs/profile/llama-profile.json"
	for _, plan := range []string{"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipev"} {
		cut := "10,8,8,6"
		if slices.Contains([]string{"interleaved", "zb-v", "dualpipev"}, plan) { // with two stages on a rank
			cut = "3,5,4,4,4,4,4,4"
		}
		run := func(into any, args ...string) {
			stdout, stderr, status := weir("", append(args, "--json", "--ranks", "4", "--microbatches", "8", "--seq", "8192", "--layers", cut)...)
			require.Equal(t, good, status, stderr)
			require.NoError(t, json.Unmarshal([]byte(stdout), into))
		}
		var predicted fitted
		var planned certificates
		run(&predicted, "fit", profile, "--schedule", plan, "--no-reserved", "--allowance", "0")
		run(&planned, "mem", "plan", plan, "--costs", profile)
		for rank, r := range planned.PerRank {
			require.Equal(t, r.AtOnce, predicted.Ranks[rank].Total, "%s, rank %d", plan, rank)
			require.LessOrEqual(t, r.AtOnce, r.Total)
		}
	}
}

// Commands that divide the layers of a profile among stages say how, so that the stages can be built.
func TestLayersByStageOfProfiles(t *testing.T) {
	for _, args := range [][]string{{"sim", "1f1b"}, {"mem", "plan", "1f1b"}, {"choose", "--stages", "4"}} {
		args = append(args, "--ranks", "4", "--microbatches", "4", "--costs", "../../docs/profile/llama-profile.json", "--seq", "8192")
		stdout, stderr, status := weir("", args...)
		require.Equal(t, good, status, stderr)
		require.Contains(t, stdout, "layers by stage: 8 8 9 7\n")
		stdout, stderr, status = weir("", append(args, "--json")...)
		require.Equal(t, good, status, stderr)
		var out struct {
			Layers []int `json:"layers_by_stage"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
		require.Equal(t, []int{8, 8, 9, 7}, out.Layers)
	}
}

// Each command that reads a profile of a model reports a fault of the file in the same words, with its position if it
// has one, and a fault of the flags without the name of a package.
func TestBrokenProfiles(t *testing.T) {
	text := testkit.Read(t, "../../docs/profile/llama-profile.json")
	file, tokens := filepath.Join(t.TempDir(), "model.json"), filepath.Join(t.TempDir(), "lengths.txt")
	require.NoError(t, os.WriteFile(tokens, []byte("2048\n4096\n"), 0o600))
	commands := [][]string{
		{"fit", file, "--ranks", "64", "--seq", "4096"}, {"sim", "1f1b", "--ranks", "64", "--costs", file, "--seq", "4096"}, {"mem", "plan", "1f1b", "--ranks", "64", "--costs", file, "--seq", "4096"},
		{"choose", "--ranks", "32", "--microbatches", "8", "--costs", file, "--seq", "4096"}, {"pack", tokens, "--ranks", "64", "--tokens", "8192", "--costs", file},
	}
	for _, c := range []struct{ from, to, want string }{
		{"\n  2048,", "\n  NaN,", file + `:12:3: found "NaN", expected a value`},
		{text[len(text)/2:], "", "found the end of the text, expected more of the profile of a model"},
		{`"weir model profile"`, `"weir plan"`, file + `:2:10: found the form "weir plan", expected "weir model profile", which is the profile of a model: give another file`},
		{`"count": 218112000`, `"count": -1`, file + `: count of kind 1 ("model.layers.0") is -1, expected 0 to 1125899906842624: correct the file, or profile the model again`},
		{"{", "{", "weir: 32 layers do not suffice for 64 stages"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(text, c.from, c.to, 1)), 0o600))
		for _, args := range commands {
			fails(t, misused, c.want, "", args...)
		}
	}
	fails(t, misused, file+" is a profile: give it with --costs", "", "pack", tokens, "--ranks", "2", "--tokens", "8192", "--config", file)
}
