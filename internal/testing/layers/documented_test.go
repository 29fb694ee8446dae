package layers

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryPackageIsDocumented wants a doc.go in every package of the library,
// and a tested Example in every public one. Commands and suites have their package
// comment where it suits them.
func TestEveryPackageIsDocumented(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{if .GoFiles}}{{.Name}} {{.ImportPath}} {{.Dir}}{{end}}`, "./...")
	list.Dir = "../../.."
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 { // a suite, which has tests alone
			continue
		}
		path := strings.TrimPrefix(fields[1], module)
		if fields[0] == "main" || path == "tests" || strings.HasPrefix(path, "tests/") {
			continue
		}
		doc, err := parser.ParseFile(token.NewFileSet(), filepath.Join(fields[2], "doc.go"), nil, parser.ParseComments)
		require.NoError(t, err, path)
		require.NotNil(t, doc.Doc, "%s: doc.go says nothing", path)
		require.True(t, strings.HasPrefix(doc.Doc.Text(), "Package "+fields[0]+" "), "%s: its first words", path)
		if strings.Contains("/"+path, "/internal/") {
			continue
		}
		require.True(t, hasExample(t, fields[2]), "%s has no Example with an output", path)
	}
}

func hasExample(t *testing.T, folder string) bool {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), "\nfunc Example") && strings.Contains(string(source), "// Output:") {
			return true
		}
	}
	return false
}
