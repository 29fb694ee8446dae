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

var numbered = regexp.MustCompile("(?m)^\\s*(?:const )?(?:\\w*[sS]chema|\\w*[vV]ersion|protocol)\\s*= \\d+|json:\"schema\"|json:\"version\"|\\bSchema: +\\d")

// TestFormatsHaveFixtures requires fixtures, which testkit.Format keeps, in every package with a numbered
// format.
func TestFormatsHaveFixtures(t *testing.T) {
	const root = "../../.."
	without := map[string]string{
		"examples/train":      "an example, which imports nothing of internal",
		"internal/release":    "CycloneDX's format",
		"trainer/metrics":     "records of the memory log, whose fixture is memlog's",
		"trainer/tensorboard": "TensorFlow's format",
	}
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/tests/") || strings.Contains(path, "/testdata/") {
			return err
		}
		source, err := os.ReadFile(path)
		if numbered.Match(source) {
			found[filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+"/"))] = true
		}
		return err
	}))
	require.Greater(t, len(found), len(without)+10)
	for folder := range found {
		if without[folder] == "" {
			fixtures, err := filepath.Glob(filepath.Join(root, folder, "testdata/formats/*"))
			require.NoError(t, err)
			require.NotEmpty(t, fixtures, "%s has a format with a number: add a testkit.Format for it", folder)
		}
	}
}
