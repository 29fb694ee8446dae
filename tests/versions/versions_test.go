package versions

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

var old = flag.String("old", "", "the other commit; the last tag before this one if it is empty")

// programs are the command and the example of a version, built in a folder.
type programs struct {
	*testing.T
	folder, text string
}

// build builds the programs of a checkout.
func build(t *testing.T, checkout, text string) programs {
	p := programs{t, t.TempDir(), text}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=true", "-o", p.folder+"/", "./cmd/weir", "./examples/train")
	cmd.Dir = checkout
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return p
}

func (p programs) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.Context(), filepath.Join(p.folder, program), args...)
	cmd.Dir = p.folder
	return cmd
}

// weir runs the command and returns its output.
func (p programs) weir(args ...string) string {
	p.Helper()
	out, err := p.command("weir", args...).CombinedOutput()
	require.NoError(p, err, "weir %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// train returns the command of a training run of a number of steps, without its run folder.
func (p programs) train(steps string, args ...string) *exec.Cmd {
	return p.command("train", slices.Concat([]string{"-data", p.text, "-steps", steps, "-microbatches", "4", "-seq", "16", "-width", "16",
		"-layers", "2", "-heads", "2", "-warmup", "1", "-ranks", "2", "-fp8", "delayed", "-evaluate", "0"}, args)...)
}

// weights runs the training and returns the digest of its weights.
func (p programs) weights(steps string, args ...string) string {
	p.Helper()
	summary := filepath.Join(p.TempDir(), "summary.json")
	out, err := p.train(steps, append(args, "-run", filepath.Join(p.TempDir(), "run"), "-json", summary)...).CombinedOutput()
	require.NoError(p, err, "%s", out)
	text, err := os.ReadFile(summary)
	require.NoError(p, err)
	var s struct {
		Sum string `json:"weights_sha256"`
	}
	require.NoError(p, json.Unmarshal(text, &s))
	return s.Sum
}

// TestLastVersion reads the files of the last version, resumes its training and requires the weights that the
// last version computes when it resumes, and starts jobs with a process of each version, which refuse each other
// with an error that names both versions, or says that their protocols differ.
func TestLastVersion(t *testing.T) {
	if !*testkit.Long {
		t.Skip("builds two versions: run it with -long")
	}
	if *old == "" {
		tag, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD~1").Output()
		if err != nil {
			t.Skip("NO OTHER VERSION WAS RUN: no commit before this one has a tag; give -old COMMIT")
		}
		*old = strings.TrimSpace(string(tag))
	}
	folder := t.TempDir()
	checkout, text := filepath.Join(folder, "checkout"), filepath.Join(folder, "text")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("All colours differ in degrees of refrangibility.\n", 30)), 0o666))
	for _, args := range [][]string{{"clone", "-q", "--shared", "../..", checkout}, {"-C", checkout, "checkout", "-q", *old}} {
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	was, now := build(t, checkout, text), build(t, "../..", text)
	versions := []string{strings.Fields(was.weir("--version"))[1], strings.Fields(now.weir("--version"))[1]}
	t.Log(versions)

	in := func(name string) string { return filepath.Join(folder, name) }
	was.weir("plan", "zb1p", "--ranks", "2", "--microbatches", "8", "--to", "plan", "-o", in("plan.json"))
	was.weir("plan", "zb1p", "--ranks", "2", "--microbatches", "8", "-o", in("plan.txt"))
	require.NoError(t, os.WriteFile(in("slots.json"), []byte(was.weir("slots", in("plan.json"), "--json")), 0o666))
	for _, plan := range []string{in("plan.json"), in("plan.txt")} {
		require.Equal(t, was.weir("convert", plan, "--to", "text"), now.weir("convert", plan, "--to", "text"))
		now.weir("check", plan)
		now.weir("slots", plan, "--against", in("slots.json"))
	}
	was.weights("4", "-checkpoint", in("saved"))
	require.Equal(t, was.weights("8", "-resume", in("saved")), now.weights("8", "-resume", in("saved")))
	now.weir("checkpoint", "verify", in("saved"))
	for flag, read := range map[string]string{
		"-emit-costs":   "sim interleaved --stages 4 --costs",
		"-emit-profile": "mem plan 1f1b --stages 2 --profile",
	} {
		out, err := was.train("1", flag, in("emitted")).CombinedOutput()
		require.NoError(t, err, "%s", out)
		now.weir(append(strings.Fields(read), in("emitted"), "--ranks", "2", "--microbatches", "8")...)
	}

	for first, p := range []programs{was, now} {
		at, other := "unix:"+in("socket"), []programs{now, was}[first]
		rank := func(p programs, number string) *exec.Cmd {
			return p.train("4", "-transport", at, "-process", number, "-processes", "2", "-launcher", "none", "-run", filepath.Join(t.TempDir(), "run"))
		}
		waiting := rank(p, "0")
		require.NoError(t, waiting.Start())
		out, err := rank(other, "1").CombinedOutput()
		require.Error(t, err)
		require.Error(t, waiting.Wait())
		if !strings.Contains(string(out), "of the protocol") {
			require.Contains(t, string(out), versions[0])
			require.Contains(t, string(out), versions[1])
		}
		t.Logf("%s", out)
	}
}
