package layers

import (
	"io/fs"
	"os"
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
