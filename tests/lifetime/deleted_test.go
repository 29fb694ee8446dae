package lifetime_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var long = flag.Bool("long", false, "run the long sweeps")

// releases are the calls that end something, by name, each with what stands for
// it when it is deleted: the same type, and nothing done.
var releases = map[string]string{
	"drop":          "func(...any) error { return nil }",
	"dropAll":       "func(...any) error { return nil }",
	"DropParts":     "func(...any) error { return nil }",
	"DropInputs":    "func(...any) error { return nil }",
	"DropGradients": "func(...any) error { return nil }",
	"DropSaved":     "func(...any) error { return nil }",
	"DropSent":      "func(...any) error { return nil }",
	"DropGathered":  "func(...any) error { return nil }",
	"Discard":       "func(...any) error { return nil }",
	"Release":       "func(...any) (int64, error) { return 0, nil }",
	"Yield":         "func(...any) (int64, error) { return 0, nil }",
	"Reclaim":       "func(...any) {}",
	"Abort":         "func(...any) {}",
	"abort":         "func(...any) {}",
	"giveBack":      "func(...any) {}",
	"release":       "func(...any) {}",
	"leave":         "func(...any) {}",
	"pop":           "func(...any) {}",
	"empty":         "func(...any) {}",
	"end":           "func(...any) {}",
	"End":           "func(...any) {}",
	"clear":         "func(...any) {}",
}

// zeros are the names of zero values: assigning one to a place ends what it held.
var zeros = map[string]bool{"zero": true, "none": true, "nil": true}

// deletion is a file with one release taken out.
type deletion struct {
	file, what string
	line       int
	source     []byte
}

// TestEveryReleaseIsNeeded deletes each release of the runner and of the context,
// one at a time, and runs the suites against what is left: one must turn red.
func TestEveryReleaseIsNeeded(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	var all []deletion
	for _, folder := range []string{"context", "schedule/runner"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				all = append(all, deletions(t, file)...)
			}
		}
	}
	require.Greater(t, len(all), 20, "there are more releases than that")
	if !*long {
		t.Skipf("%d releases to delete, each with a build and a run of the suites: run with -long", len(all))
	}
	for _, suite := range suites {
		require.Empty(t, firstFailure(t, root, suite), "%s is red with every release in place", suite)
	}
	for _, d := range all {
		name, err := filepath.Rel(root, d.file)
		require.NoError(t, err)
		t.Run(fmt.Sprintf("%s:%d %s", filepath.ToSlash(name), d.line, d.what), func(t *testing.T) {
			mutated := filepath.Join(t.TempDir(), "mutated.go")
			require.NoError(t, os.WriteFile(mutated, d.source, 0o600))
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			table, err := json.Marshal(map[string]map[string]string{"Replace": {d.file: mutated}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, table, 0o600))

			build := exec.Command("go", "build", "-overlay", overlay, "./context", "./schedule/runner")
			build.Dir = root
			out, err := build.CombinedOutput()
			require.NoError(t, err, "the deletion does not build:\n%s", out)
			for _, suite := range suites {
				if failure := firstFailure(t, root, suite, "-overlay", overlay); failure != "" {
					t.Logf("%s is red: %s", suite, failure)
					return
				}
			}
			t.Error("every suite is green without it")
		})
	}
}

// suites are run against each deletion, the quickest first.
var suites = []string{"./context", "./schedule/runner", "./tests/lifetime", "./tests/fault"}

// firstFailure runs a suite and returns the line of the first test that failed, ""
// where none did. A run that fails in any other way proves nothing.
func firstFailure(t *testing.T, root, suite string, flags ...string) string {
	t.Helper()
	run := exec.Command("go", append(append([]string{"test", "-vet=off", "-failfast", "-timeout=5m"}, flags...), suite)...)
	run.Dir = root
	out, err := run.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "panic:") {
			return line
		}
	}
	require.NoError(t, err, "%s did not run:\n%s", suite, out)
	return ""
}

// deletions returns the file once for each of its releases, without it.
func deletions(t *testing.T, file string) []deletion {
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, source, 0)
	require.NoError(t, err)

	var found []deletion
	replace := func(from, to token.Pos, text string) {
		at, end := files.Position(from), files.Position(to)
		mutated := append([]byte{}, source[:at.Offset]...)
		mutated = append(mutated, text...)
		mutated = append(mutated, source[end.Offset:]...)
		found = append(found, deletion{file, string(source[at.Offset:end.Offset]), at.Line, mutated})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if nothing, ok := releases[called(n)]; ok {
				if f, method := n.Fun.(*ast.SelectorExpr); method && f.Sel.Name == "Release" && isName(f.X, "m") {
					nothing = releases["drop"] // a view's Release returns an error alone
				}
				from := n.Lparen
				mutant := nothing + string(source[files.Position(from).Offset:files.Position(n.End()).Offset])
				replace(n.Pos(), n.End(), mutant)
			}
		case *ast.AssignStmt:
			if n.Tok == token.ASSIGN && endsSomething(n) {
				text := strings.Repeat("_, ", len(n.Lhs)-1) + "_ = "
				for i, to := range n.Lhs {
					if i > 0 {
						text += ", "
					}
					text += string(source[files.Position(to.Pos()).Offset:files.Position(to.End()).Offset])
				}
				replace(n.Pos(), n.End(), text+useless(n, source, files))
			}
		}
		return true
	})
	return found
}

// useless keeps the right-hand names of a deleted assignment used.
func useless(n *ast.AssignStmt, source []byte, files *token.FileSet) string {
	if name, ok := n.Rhs[0].(*ast.Ident); ok && name.Name != "nil" {
		return "; _ = " + string(source[files.Position(name.Pos()).Offset:files.Position(name.End()).Offset])
	}
	return ""
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

// endsSomething reports whether the assignment puts zero values into places that
// are not plain variables.
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
