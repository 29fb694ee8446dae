package layers

import (
	"encoding/json"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unresolved matches text that was meant as a link to a name but is none, such as [Runnner.Step].
var unresolved = regexp.MustCompile(`(?:^|[\s(*])\[\*?(?:\w+\.)?[A-Z]\w*(?:\.\w+)?\]`)

// TestDocLinks requires that every link in a doc comment leads to a name that exists.
func TestDocLinks(t *testing.T) {
	list := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles", "./...")
	list.Dir = "../../.."
	out, err := list.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, list.Start())
	all := map[string]*doc.Package{}
	for decoder := json.NewDecoder(out); decoder.More(); {
		var one struct {
			ImportPath, Dir         string
			GoFiles, IgnoredGoFiles []string
		}
		require.NoError(t, decoder.Decode(&one))
		files := token.NewFileSet()
		var trees []*ast.File
		for _, name := range append(one.GoFiles, one.IgnoredGoFiles...) {
			tree, err := parser.ParseFile(files, filepath.Join(one.Dir, name), nil, parser.ParseComments)
			require.NoError(t, err)
			if !strings.HasSuffix(name, "_test.go") {
				trees = append(trees, tree)
			}
		}
		if len(trees) > 0 { // otherwise it has only tests
			all[one.ImportPath], err = doc.NewFromFiles(files, trees, one.ImportPath, doc.PreserveAST|doc.AllDecls)
			require.NoError(t, err)
		}
	}
	require.NoError(t, list.Wait())
	links := 0
	for path, p := range all {
		check := func(text string) {
			for _, block := range p.Parser().Parse(text).Content {
				paragraph, ok := block.(*comment.Paragraph)
				if !ok {
					continue
				}
				for _, word := range paragraph.Text {
					switch word := word.(type) {
					case comment.Plain:
						if link := unresolved.FindString(string(word)); link != "" {
							t.Errorf("%s has %s in a comment, which is no name", path, link)
						}
					case *comment.DocLink:
						links++
						if other := all[word.ImportPath]; other != nil && word.Name != "" {
							require.True(t, other.Parser().LookupSym(word.Recv, word.Name), "%s links to %s.%s of %s", path, word.Recv, word.Name, word.ImportPath)
						}
					}
				}
			}
		}
		check(p.Doc)
		for _, values := range [][]*doc.Value{p.Consts, p.Vars} {
			for _, v := range values {
				check(v.Doc)
			}
		}
		for _, f := range p.Funcs {
			check(f.Doc)
		}
		for _, one := range p.Types {
			check(one.Doc)
			for _, f := range append(one.Funcs, one.Methods...) {
				check(f.Doc)
			}
		}
	}
	require.Greater(t, links, 20)
}
