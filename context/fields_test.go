package batchctx_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
)

// TestFieldsOfAliasesAreDocumented compares the comments of aliases of structs with the fields, in order,
// because go doc shows only the comment of an alias of an internal type.
func TestFieldsOfAliasesAreDocumented(t *testing.T) {
	types := map[string]reflect.Type{
		"Range":     reflect.TypeFor[batchctx.Range](),
		"LeakError": reflect.TypeFor[batchctx.LeakError](),
	}
	for _, file := range []string{"kinds.go", "errors.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			name := decl.Specs[0].(*ast.TypeSpec).Name.Name
			want, ok := types[name]
			if !ok {
				continue
			}
			delete(types, name)
			var documented, fields []string
			for line := range strings.Lines(decl.Doc.Text()) {
				if field, indented := strings.CutPrefix(line, "\t"); indented {
					words := strings.Fields(field)
					documented = append(documented, words[0]+" "+words[1][strings.LastIndexByte(words[1], '.')+1:])
				}
			}
			for i := range want.NumField() {
				fields = append(fields, want.Field(i).Name+" "+want.Field(i).Type.Name())
			}
			require.Equal(t, fields, documented, name)
		}
	}
	require.Empty(t, types, "no alias of these types was found")
}
