package layers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// checked is a package as go list describes it, with the files that one platform builds.
type checked struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // the imports whose package has another path
	Module          *struct{ Main bool }
}

// types checks the package. The packages that it imports must be in all.
func (c *checked) types(platform string, all map[string]*types.Package) (*types.Package, error) {
	own := c.Module != nil && c.Module.Main
	files := token.NewFileSet()
	var trees []*ast.File
	for _, name := range c.GoFiles {
		tree, err := parser.ParseFile(files, filepath.Join(c.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree)
	}
	config := types.Config{
		Importer: importing(func(path string) (*types.Package, error) {
			if to := c.ImportMap[path]; to != "" {
				path = to
			}
			if all[path] == nil {
				return nil, fmt.Errorf("%s is not listed", path)
			}
			return all[path], nil
		}),
		Sizes:            types.SizesFor("gc", strings.Split(platform, "/")[1]),
		IgnoreFuncBodies: !own,
	}
	return config.Check(c.ImportPath, files, trees, nil)
}

type importing func(path string) (*types.Package, error)

func (f importing) Import(path string) (*types.Package, error) { return f(path) }

// TestOtherPlatforms type-checks every package, and its tests, for the platforms that this machine
// cannot run.
func TestOtherPlatforms(t *testing.T) {
	testkit.Slow(t)
	platforms := []string{"darwin/arm64", "windows/amd64"}
	if *testkit.Long { // .ci/run tests there
		platforms = append(platforms, "linux/arm64")
	}
	for _, platform := range platforms {
		t.Run(platform, func(t *testing.T) {
			system, processor, _ := strings.Cut(platform, "/")
			list := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
			list.Dir = filepath.Join("..", "..", "..")
			list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
			list.Stderr = os.Stderr
			out, err := list.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, list.Start())
			all := map[string]*types.Package{"unsafe": types.Unsafe}
			for packages := json.NewDecoder(out); ; { // each package comes after the packages that it imports
				var c checked
				err := packages.Decode(&c)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				if c.ImportPath == "unsafe" || strings.HasSuffix(c.ImportPath, ".test") {
					continue
				}
				all[c.ImportPath], err = c.types(platform, all)
				require.NoError(t, err)
			}
			require.NoError(t, list.Wait())
			require.Greater(t, len(all), 300)
		})
	}
}
