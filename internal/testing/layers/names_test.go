package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`)
	named    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	placed   = regexp.MustCompile("((?:`\\w+`(?:,|,? and)? )+)in `([\\w/]+)`") // `TestA` and `TestB` in `folder`
	linked   = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	code     = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
)

// TestPagesNameWhatExists checks that every test, file and folder named by a Markdown page exists, and that
// each test is in the folder that the page gives. The changelog may name what no longer exists.
func TestPagesNameWhatExists(t *testing.T) {
	const root = "../../.."
	tests := map[string][]string{} // folders, by name
	var pages, folders []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && filepath.Dir(path) == root && !strings.HasPrefix(entry.Name(), "."):
			folders = append(folders, entry.Name())
		case strings.HasSuffix(path, ".go"):
			source, err := os.ReadFile(path)
			for _, match := range declared.FindAllSubmatch(source, -1) {
				name := string(match[1])
				tests[name] = append(tests[name], filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+"/")))
			}
			return err
		case strings.HasSuffix(path, ".md") && entry.Name() != "CHANGELOG.md":
			pages = append(pages, path)
		}
		return nil
	}))
	require.Greater(t, len(pages), 10)
	inTree := regexp.MustCompile(`^(?:\./)?((?:` + strings.Join(folders, "|") + `)(?:/[\w.*-]+)+)`)
	exists := func(path string) bool {
		found, err := filepath.Glob(path) // as in docs/trace/rank*.json.gz
		return err == nil && len(found) > 0
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range named.FindAllString(string(text), -1) {
			require.NotEmpty(t, tests[name], "%s names %s, and there is no such test", page, name)
		}
		for _, match := range placed.FindAllStringSubmatch(string(text), -1) {
			for _, name := range named.FindAllString(match[1], -1) {
				require.Contains(t, tests[name], match[2], "%s says that %s is there", page, name)
			}
		}
		for _, link := range linked.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			require.True(t, exists(filepath.Join(filepath.Dir(page), link[1])), "%s links to %s, which is not there", page, link[1])
		}
		for _, words := range code.FindAllString(string(text), -1) {
			for _, word := range strings.Fields(strings.Trim(words, "`")) {
				if path := inTree.FindStringSubmatch(strings.TrimRight(word, ".,:;)")); path != nil {
					symbol := strings.TrimSuffix(path[1], filepath.Ext(path[1])) // as in memory/placement.Solve
					require.True(t, exists(filepath.Join(root, path[1])) || exists(filepath.Join(root, symbol)), "%s names %s, which is not there", page, path[1])
				}
			}
		}
	}
}

// TestEveryPackageIsDocumented requires a doc.go in every package of the library, and a tested Example in every
// public package. Commands and suites may have their package comment in any file.
func TestEveryPackageIsDocumented(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{if .GoFiles}}{{.Name}} {{.ImportPath}} {{.Dir}}{{end}}`, "./...")
	list.Dir = "../../.."
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 { // a suite, which has only tests
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
