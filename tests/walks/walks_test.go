// Package walks checks docs/dev/walks.md against the code: every function that a walk lists runs,
// in the order of the list.
package walks

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/tests/toy"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/metrics"
)

// TestMicrobatch trains two stages of one rank on one microbatch.
func TestMicrobatch(t *testing.T) {
	model, err := toy.New(2)
	require.NoError(t, err)
	defer model.Device.Close()
	r, err := runner.New(model.Config())
	require.NoError(t, err)
	defer r.Close()
	result, err := r.Step(t.Context(), 1, model.Source(4))
	require.NoError(t, err)
	require.Equal(t, loss.Stepped, result.Outcome)
}

// TestTwoRanks trains a stage on each of two ranks with the rule 1f1b.
func TestTwoRanks(t *testing.T) {
	type number = *float64
	type view = batchctx.Microbatch[number]
	size := func(number) int64 { return 8 }
	port := []stages.Port{{Name: "x"}}
	first := &stages.Func[number]{
		Declares: stages.Spec{Name: "first", Reads: []stages.Read{{Part: "x"}}, Outputs: port},
		ForwardFunc: func(_ context.Context, mb view, _, out []number) error {
			x := *mb.Part(1)
			out[0] = &x
			return nil
		},
	}
	last := &stages.Func[number]{
		Declares:    stages.Spec{Name: "last", Inputs: port, Losses: []string{"loss"}},
		ForwardFunc: func(_ context.Context, mb view, in, _ []number) error { mb.Loss(1, *in[0], 1); return nil },
		BackwardFunc: func(_ context.Context, mb view, _, gradIn []number) error {
			one := float64(mb.LossSeed(1))
			gradIn[0] = &one
			return nil
		},
	}
	cfg := runner.Config[number]{
		Stages: []stages.Stage[number]{first, last}, Schedule: "1f1b",
		Spaces: runner.Spaces[number](memory.NewGCSpace(nil, size), memory.NewGCSpace(nil, size)),
		Losses: []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
	}
	cfg.Topology.Copy = func(_, _ int, h number) (number, error) { x := *h; return &x, nil }
	r, err := runner.New(cfg)
	require.NoError(t, err)
	defer r.Close()
	result, err := r.Step(t.Context(), 4, runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
		x := float64(e.Index())
		e.Put("x", &x)
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, 1.5, result.Loss("loss"))
}

// TestChosenPlan chooses a plan, writes it to a file, and trains with the file as a job does.
func TestChosenPlan(t *testing.T) {
	costs := &simulate.Costs{Unit: "ns", Stages: []simulate.StageCosts{{F: 1, B: 2}}}
	choice, err := choose.Choose(choose.Request{Ranks: 1, Stages: 2, Microbatches: 4, Costs: costs})
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, format.WriteJSON(&text, choice.Best.Plan, costs))
	path := testkit.File(t, "best.json", text.Bytes())

	opts := job.Flags(flag.NewFlagSet("train", flag.ContinueOnError))
	require.NoError(t, opts.Parse([]string{"-plan", path}))
	require.NoError(t, opts.Validate(2))
	model, err := toy.New(2)
	require.NoError(t, err)
	defer model.Device.Close()
	cfg := model.Config()
	cfg.Plan = opts.RunnerPlan()
	r, err := runner.New(cfg)
	require.NoError(t, err)
	defer r.Close()
	run := metrics.New(1)
	run.Begin(metrics.Config{Spaces: []metrics.Space{model.Device}, Costs: opts.Priced})
	result, err := run.Step(func() (*runner.Result, error) { return r.Step(t.Context(), 4, model.Source(4)) })
	require.NoError(t, err)
	require.Equal(t, loss.Stepped, result.Outcome)
	require.Equal(t, choice.Best.Plan.Microbatches, result.Plan.Microbatches)
}

// walk is a list of docs/dev/walks.md.
type walk struct {
	title, test string
	functions   []function
}

// function is a function or method that a walk lists, given by its file and its name.
type function struct{ file, name string }

var (
	program = regexp.MustCompile("`(Test\\w+)` in `tests/walks` runs this list")
	step    = regexp.MustCompile(`^\d+\. (.*?): `)
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// parse reads the walks of a page. A name belongs to the file that is named before it.
func parse(t *testing.T, page string) (walks []walk) {
	var w *walk
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			walks = append(walks, walk{title: strings.TrimSpace(title)})
			w = &walks[len(walks)-1]
		}
		if match := program.FindStringSubmatch(line); match != nil {
			w.test = match[1]
		}
		if match := step.FindStringSubmatch(line); match != nil {
			file := ""
			for _, word := range quoted.FindAllStringSubmatch(match[1], -1) {
				if strings.HasSuffix(word[1], ".go") {
					file = word[1]
					continue
				}
				require.NotEmpty(t, file, "%s: %s comes before its file", w.title, word[1])
				w.functions = append(w.functions, function{file, word[1]})
			}
		}
	}
	return walks
}

// recorder is the file that is added to every package with a listed function: it appends the
// numbers of functions to the file TRACE.
const recorder = `package %s

import (
	"os"
	"strconv"
)

var trace, _ = os.OpenFile(os.Getenv("TRACE"), os.O_APPEND|os.O_WRONLY, 0)

func entered(number int) { _, _ = trace.WriteString(strconv.Itoa(number) + "\n") }
`

// TestWalks runs the test of each walk with a call of the recorder at the beginning of every listed
// function. The functions of a walk must be entered in its order; other entries may occur in between. Thus
// the trace proves that the test runs the listed functions one after another. It proves neither that they
// run for the same buffer nor that the list is complete.
func TestWalks(t *testing.T) {
	testkit.Slow(t)
	if invariants.Enabled {
		t.Skip("it builds a program of its own, which has no tags: run it without -tags invariants")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	page := testkit.Read(t, filepath.Join(root, "docs", "dev", "walks.md"))
	walks := parse(t, page)
	require.Len(t, walks, 4)
	work := t.TempDir()

	numbers := map[function]int{}
	byFile := map[string][]function{}
	for _, w := range walks {
		require.NotEmpty(t, w.test, "%s names no test", w.title)
		for _, f := range w.functions {
			if _, there := numbers[f]; !there {
				numbers[f] = len(numbers)
				byFile[f.file] = append(byFile[f.file], f)
			}
		}
	}
	replaced := map[string]string{}
	write := func(file string, text []byte) {
		replaced[file] = filepath.Join(work, strings.ReplaceAll(strings.TrimPrefix(file, root), string(filepath.Separator), "_"))
		require.NoError(t, os.WriteFile(replaced[file], text, 0o600))
	}
	for file, list := range byFile {
		path := filepath.Join(root, filepath.FromSlash(file))
		text, name := traced(t, path, list, numbers)
		write(path, text)
		write(filepath.Join(filepath.Dir(path), "recorder_of_walks.go"), fmt.Appendf(nil, recorder, name))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(work, "overlay.json"), overlay, 0o600))
	binary := filepath.Join(work, "walks.test")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(work, "overlay.json"), "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, w := range walks {
		t.Run(w.title, func(t *testing.T) {
			trace := testkit.File(t, "trace", "")
			run := exec.Command(binary, "-test.run", "^"+w.test+"$", "-test.v")
			run.Env = append(os.Environ(), "TRACE="+trace)
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "--- PASS: "+w.test)
			entries := testkit.Read(t, trace)
			rest := strings.Fields(entries)
			for i, f := range w.functions {
				at := slices.Index(rest, strconv.Itoa(numbers[f]))
				if at < 0 && i > 0 {
					require.Fail(t, "a walk that does not run", "%s does not enter %s after %s", w.test, f.name, w.functions[i-1].name)
				}
				require.GreaterOrEqual(t, at, 0, "%s does not enter %s", w.test, f.name)
				rest = rest[at+1:]
			}
		})
	}
}

// traced returns the source of a file in which the listed functions first call the recorder,
// and the name of its package.
func traced(t *testing.T, path string, list []function, numbers map[function]int) (text []byte, pkg string) {
	source := []byte(testkit.Read(t, path))
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	var changed bytes.Buffer
	last, found := 0, 0
	for _, d := range tree.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if i := slices.Index(list, function{list[0].file, nameOf(decl)}); i >= 0 {
			body := files.Position(decl.Body.Lbrace).Offset + 1
			changed.Write(source[last:body])
			fmt.Fprintf(&changed, " entered(%d);", numbers[list[i]])
			last = body
			found++
		}
	}
	require.Equal(t, len(list), found, "%s does not declare all of %v", path, list)
	changed.Write(source[last:])
	return changed.Bytes(), tree.Name.Name
}

// nameOf returns Function or Type.Method.
func nameOf(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	receiver := decl.Recv.List[0].Type
	for {
		switch of := receiver.(type) {
		case *ast.StarExpr:
			receiver = of.X
		case *ast.IndexExpr:
			receiver = of.X
		case *ast.IndexListExpr:
			receiver = of.X
		default:
			return receiver.(*ast.Ident).Name + "." + decl.Name.Name
		}
	}
}
