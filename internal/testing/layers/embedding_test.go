package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deepest is the length of the longest chain of types that embed each other. A chain in a package
// for tests may have one type more, because a test double such as stagetest.Exact embeds a real type.
const deepest = 2

// TestEmbedding checks that a struct embeds one type at most, and that the chains of embedded types are short.
// Command weir may embed groups of flags, and tests may embed anything.
func TestEmbedding(t *testing.T) {
	const root = "../../.."
	embeds := map[string]string{} // by type: the type that it embeds
	var faults []string
	require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(file), root+string(filepath.Separator)))
		if err == nil && entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && file != root) {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(folder, "tests/") || folder == "cmd/weir" {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		imports := map[string]string{} // by name
		for _, spec := range parsed.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if spec.Name == nil {
				imports[path.Base(imported)] = imported
			} else {
				imports[spec.Name.Name] = imported
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if structure, ok := n.Type.(*ast.StructType); ok {
					for _, inner := range embedded(structure, module+folder, imports) {
						embeds[module+folder+"."+n.Name.Name] = inner
					}
				}
			case *ast.StructType:
				if all := embedded(n, module+folder, imports); len(all) > 1 {
					faults = append(faults, fmt.Sprintf("a struct in %s embeds %v: make fields of all but the one that it is", file, all))
				}
			}
			return true
		})
		return nil
	}))
	longest := 0
	for outer := range embeds {
		chain := []string{outer}
		for inner, ok := embeds[outer]; ok; inner, ok = embeds[inner] {
			chain = append(chain, inner)
		}
		if strings.HasSuffix(outer[:strings.LastIndex(outer, ".")], "test") {
			chain = chain[1:]
		}
		if longest = max(longest, len(chain)-1); len(chain)-1 > deepest {
			faults = append(faults, fmt.Sprintf("each of these embeds the next: %v: make fields of some", chain))
		}
	}
	slices.Sort(faults)
	require.Empty(t, faults, strings.Join(faults, "\n"))
	require.Equal(t, deepest, longest, "no chain is as long: lower the number")
}

// embedded returns the types that a struct embeds, with their packages.
func embedded(structure *ast.StructType, folder string, imports map[string]string) (all []string) {
	for _, field := range structure.Fields.List {
		inner := field.Type
		for generic := true; generic; {
			switch n := inner.(type) {
			case *ast.StarExpr:
				inner = n.X
			case *ast.IndexExpr:
				inner = n.X
			case *ast.IndexListExpr:
				inner = n.X
			default:
				generic = false
			}
		}
		if len(field.Names) > 0 {
			continue
		}
		if n, ok := inner.(*ast.SelectorExpr); ok {
			all = append(all, imports[n.X.(*ast.Ident).Name]+"."+n.Sel.Name)
		} else {
			all = append(all, folder+"."+inner.(*ast.Ident).Name)
		}
	}
	return all
}
