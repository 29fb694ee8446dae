package lifetime_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// ends maps the name of every call that releases something to the function that makes or omits the call.
// The function depends on the type of the call's result.
var ends = map[string]string{
	"drop": "unlessError", "DropAt": "unlessError", "DropParts": "unlessError", "DropSaved": "unlessError", "Discard": "unlessError",
	"Release": "unlessFreed", "Unhold": "unlessFreed",
	"Reclaim": "unless", "Abort": "unless", "abort": "unless", "GiveBack": "unless",
	"release": "unless", "leave": "unless", "empty": "unless",
	"end": "unless", "End": "unless", "clear": "unless",
}

// results are the result types of those functions.
var results = map[string]string{"unless": "", "unlessError": "error", "unlessFreed": "(int64, error)"}

// zeros are the names of zero values: assigning one to a variable releases the value it held.
var zeros = map[string]bool{"zero": true, "none": true, "nil": true}

// switchboard is the file that is added to each package. It omits the release with a given
// number; 0 means none.
const switchboard = `package %s

import (
	"os"
	"strconv"
)

var leftOut, _ = strconv.Atoi(os.Getenv("LEFT_OUT"))

func unless(n int, f func()) {
	if n != leftOut {
		f()
	}
}

func unlessError(n int, f func() error) error {
	if n != leftOut {
		return f()
	}
	return nil
}

func unlessFreed(n int, f func() (int64, error)) (int64, error) {
	if n != leftOut {
		return f()
	}
	return 0, nil
}
`

// deletion is a release that can be omitted.
type deletion struct {
	number int
	place  string // file:line and the text
}

// TestEveryReleaseIsNeeded omits each release of the runner and of its frames, one at a time,
// and runs the suites: one must fail, in a test that passes with all of them. The suites are
// built once, with every release under the control of a number.
func TestEveryReleaseIsNeeded(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	work := t.TempDir()
	replaced := map[string]string{}
	var all []deletion
	for _, folder := range []string{"internal/engine/frames", "schedule/runner", "schedule/runner/internal/calls", "schedule/runner/internal/replicas", "schedule/runner/record"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		name := ""
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			short, err := filepath.Rel(root, file)
			require.NoError(t, err)
			s := switched{t: t, name: filepath.ToSlash(short), first: len(all) + 1}
			text := s.file(file)
			all, name = append(all, s.found...), s.tree.Name.Name
			replaced[file] = filepath.Join(work, fmt.Sprintf("%d.go", len(replaced)))
			require.NoError(t, os.WriteFile(replaced[file], text, 0o600))
		}
		added := filepath.Join(root, folder, "switchboard.go")
		replaced[added] = filepath.Join(work, name+".go")
		require.NoError(t, os.WriteFile(replaced[added], fmt.Appendf(nil, switchboard, name), 0o600))
	}
	require.Greater(t, len(all), 20, "there are more releases than that")
	if !*testkit.Long {
		t.Skipf("%d releases to leave out, each with a run of the suites: run with -long", len(all))
	}
	overlay := filepath.Join(work, "overlay.json")
	table, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, table, 0o600))
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", work+"/")
	build.Dir = root
	for _, s := range suites {
		s.binary = filepath.Join(work, filepath.Base(s.folder)+".test")
		build.Args = append(build.Args, "./"+s.folder)
	}
	out, err := build.CombinedOutput()
	require.NoError(t, err, "the suites do not build:\n%s", out)
	var mu sync.Mutex
	passes := map[finder]bool{} // with every release in place
	var finders []finder        // the most recently successful first, because few tests find most deletions
	for _, d := range all {
		t.Run(d.place, func(t *testing.T) {
			t.Parallel()
			mu.Lock()
			order := slices.Clone(finders)
			mu.Unlock()
			for _, flag := range []string{"-test.short", "-test.short=false"} {
				for _, s := range suites {
					order = append(order, finder{s, ".", flag})
				}
			}
			for _, f := range order {
				failure, name := f.firstFailure(t, root, f.tests, d.number, f.flag)
				if failure == "" {
					continue
				}
				t.Logf("%s is red: %s", f.folder, failure)
				if name != "" {
					f.tests = "^" + name + "$"
				}
				mu.Lock()
				defer mu.Unlock()
				if !passes[f] {
					failure, _ := f.firstFailure(t, root, f.tests, 0, f.flag)
					require.Empty(t, failure, "%s is red with every release in place", f.folder)
					passes[f] = true
				}
				if f.tests != "." {
					finders = slices.Insert(slices.DeleteFunc(finders, func(g finder) bool { return g.suite == f.suite && g.tests == f.tests }), 0, f)
				}
				return
			}
			t.Error("every suite is green without it")
		})
	}
}

// suite holds the tests of a folder.
type suite struct{ folder, binary string }

// suites lists the suites that run against each deletion, the fastest first.
var suites = []*suite{{folder: "internal/engine/frames"}, {folder: "tests/lifetime"}, {folder: "tests/fault"}, {folder: "schedule/runner"}}

// finder is a pattern of tests to run against a deletion, with an additional flag.
type finder struct {
	*suite
	tests, flag string
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+).*|^panic:.*`)

// firstFailure runs tests of a suite with one release omitted. It returns the line of the first failure, or
// "", and the name of the test if the line contains it. A run that fails in another way proves nothing.
// Tests that do not depend on releases are left out.
func (s *suite) firstFailure(t *testing.T, root, tests string, number int, flags ...string) (line, test string) {
	t.Helper()
	flags = append(flags, "-test.failfast", "-test.timeout=5m", "-test.run", tests, "-test.skip", "^(TestALossCannotBeATensor|TestEveryReleaseIsNeeded)$")
	run := exec.Command(s.binary, flags...)
	run.Dir = filepath.Join(root, s.folder)
	run.Env = append(os.Environ(), fmt.Sprint("LEFT_OUT=", number))
	out, err := run.CombinedOutput()
	if err == nil {
		return "", ""
	}
	found := failed.FindSubmatch(out)
	if found == nil {
		require.NoError(t, err, "%s did not run:\n%s", s.folder, out)
	}
	return string(found[0]), string(found[1])
}

// switched puts the releases of a file under the control of their numbers.
type switched struct {
	t      *testing.T
	name   string
	first  int // number
	found  []deletion
	files  *token.FileSet
	tree   *ast.File
	source []byte
	edits  []edit // in the order of the text, not nested
}

type edit struct {
	from, to int
	text     string
}

func (s *switched) file(path string) []byte {
	var err error
	s.source, err = os.ReadFile(path)
	require.NoError(s.t, err)
	s.files = token.NewFileSet()
	s.tree, err = parser.ParseFile(s.files, path, s.source, 0)
	require.NoError(s.t, err)
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if way, ok := ends[called(n)]; ok {
				if f, method := n.Fun.(*ast.SelectorExpr); method && f.Sel.Name == "Release" && isName(f.X, "m") {
					way = "unlessError" // Release of a view returns only an error
				}
				if called(n) == "End" && len(n.Args) == 1 {
					way = "unlessError" // the end of a call returns the error of the call
				}
				s.call(n, way)
			}
		case *ast.AssignStmt:
			if n.Tok == token.ASSIGN && endsSomething(n) {
				s.replace(n, "unless(%d, func() { %s })", s.text(n))
			}
		}
		return true
	})
	var out []byte
	at := 0
	for _, e := range s.edits {
		require.GreaterOrEqual(s.t, e.from, at, "%s: a release within a release", s.name)
		out = append(append(out, s.source[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, s.source[at:]...)
}

// call puts a call under the control of its number.
func (s *switched) call(n *ast.CallExpr, way string) {
	back := ""
	if results[way] != "" {
		back = "return "
	}
	s.replace(n, way+"(%d, func() "+results[way]+" { %s })", back+s.text(n))
}

// replace records the replacement of a node by a format with a number and a text.
func (s *switched) replace(n ast.Node, format, text string) {
	number := s.first + len(s.found)
	at := s.files.Position(n.Pos())
	s.found = append(s.found, deletion{number, fmt.Sprintf("%s:%d %s", s.name, at.Line, s.text(n))})
	s.edits = append(s.edits, edit{at.Offset, s.files.Position(n.End()).Offset, fmt.Sprintf(format, number, text)})
}

func (s *switched) text(n ast.Node) string {
	return string(s.source[s.files.Position(n.Pos()).Offset:s.files.Position(n.End()).Offset])
}

func isName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// endsSomething reports whether the assignment stores zero values in places other than plain
// variables.
func endsSomething(n *ast.AssignStmt) bool {
	for i, to := range n.Lhs {
		if _, plain := to.(*ast.Ident); plain || len(n.Rhs) != len(n.Lhs) {
			return false
		}
		switch from := n.Rhs[i].(type) {
		case *ast.Ident:
			if !zeros[from.Name] {
				return false
			}
		case *ast.CompositeLit:
			if name, ok := from.Type.(*ast.Ident); !ok || name.Name != "frame" {
				if index, ok := from.Type.(*ast.IndexExpr); !ok || index.X.(*ast.Ident).Name != "cell" {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}
