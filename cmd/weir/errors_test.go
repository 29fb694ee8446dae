package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/explain"
)

// TestEveryErrorIsExplained finds every exported sentinel error in the sources. errors.txt must have a
// paragraph, with package and text, for each sentinel of a public package, and no paragraph for a sentinel that
// does not exist.
func TestEveryErrorIsExplained(t *testing.T) {
	sentinels := map[string]ast.Expr{} // by package and name, internal ones included
	folders := map[string]string{}
	var public []string
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel("../..", filepath.Dir(path))
		folder = filepath.ToSlash(folder)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") && len(spec.Values) == 1 {
				name := file.Name.Name + "." + spec.Names[0].Name
				sentinels[name] = spec.Values[0]
				folders[name] = folder
				if first, _, _ := strings.Cut(folder, "/"); !strings.Contains("/"+folder+"/", "/internal/") && !strings.Contains("cmd examples tests", first) {
					public = append(public, name)
				}
			}
			_, function := n.(*ast.FuncDecl)
			return !function
		})
		return nil
	}))
	var text func(name string) string
	text = func(name string) string {
		pkg, _, _ := strings.Cut(name, ".")
		switch value := sentinels[name].(type) {
		case *ast.SelectorExpr: // the sentinel of another package
			return text(value.X.(*ast.Ident).Name + "." + value.Sel.Name)
		case *ast.CallExpr: // errors.New(text), or fmt.Errorf(text, sentinel)
			said, err := strconv.Unquote(value.Args[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			if len(value.Args) == 2 {
				said = strings.Replace(said, "%w", text(pkg+"."+value.Args[1].(*ast.Ident).Name), 1)
			}
			return said
		}
		require.Fail(t, "a sentinel that is neither a call nor a name", name)
		return ""
	}
	explained := explain.Names()
	require.Subset(t, explained, public, "errors.txt does not explain an error")
	for _, name := range explained {
		lines := strings.Split(explain.Error(name), "\n")
		require.Len(t, lines, 4, name)
		require.Equal(t, name+", package "+folders[name], lines[0])
		require.Equal(t, text(name), lines[1], "the text of %s", name)
		require.Regexp(t, `^Cause: [A-Z].*\.$`, lines[2], name)
		require.Regexp(t, `^Fix: [A-Z].*\.$`, lines[3], name)
	}
	require.Contains(t, explain.Error("ErrShape"), "fp8.ErrShape")
	require.Contains(t, explain.Error("ErrShape"), "kernels.ErrShape")
	require.Contains(t, explain.Error("runner: rank 0 action 0B0: batchctx: leak: 64 bytes"), "batchctx.ErrLeak")
}

// TestExcerptsOfErrorsAreExplained looks errors up by a part of their text: words from its middle, the sentinel
// with the text after it, text without the package, and text in another case.
func TestExcerptsOfErrorsAreExplained(t *testing.T) {
	for excerpt, names := range map[string]string{
		"nothing was saved":                          "batchctx.ErrEmpty",
		"nothing was saved there: slot \"probs\"":    "batchctx.ErrEmpty",
		"was saved there: slot \"probs\" of stage 3": "batchctx.ErrEmpty",
		"Nothing Was Saved There":                    "batchctx.ErrEmpty",
		"rank 1: is in far memory: slot \"x\"":       "batchctx.ErrOffloaded",
		"leak":                                       "batchctx.ErrLeak",
		"leak: 64 bytes of class saved":              "batchctx.ErrLeak",
		"nothing":                                    "",
		"the place is occupied":                      "batchctx.ErrOccupied",
		"a loss or a gradient is not finite":         "runner.ErrSkipped",
		"out of memory":                              "cachingsim.ErrOutOfMemory driver.ErrOutOfMemory memory.ErrOutOfMemory",
		"out of memory on rank 3":                    "cachingsim.ErrOutOfMemory driver.ErrOutOfMemory memory.ErrOutOfMemory",
		"no such command is here":                    "",
		"...":                                        "",
	} {
		stdout, stderr, status := weir("", append([]string{"help"}, strings.Fields(excerpt)...)...)
		if names == "" {
			require.Equal(t, misused, status, excerpt)
			require.Contains(t, stderr, "give a command, or an error that weir help errors lists")
			continue
		}
		require.Zero(t, status, excerpt+stderr)
		var found []string
		for paragraph := range strings.SplitSeq(stdout, "\n\n") {
			name, _, _ := strings.Cut(paragraph, ",")
			found = append(found, name)
		}
		require.Equal(t, strings.Fields(names), found, excerpt)
	}
}
