package loss_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
)

// pointers lists the parts of a type that can refer to other memory, as paths.
func pointers(t reflect.Type, path string) []string {
	switch t.Kind() {
	case reflect.Array:
		return pointers(t.Elem(), path+"[]")
	case reflect.Struct:
		var all []string
		for i := range t.NumField() {
			all = append(all, pointers(t.Field(i).Type, path+"."+t.Field(i).Name)...)
		}
		return all
	}
	if t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr {
		return nil
	}
	return []string{path + " " + t.String()}
}

// TestStoredStateHoldsNoPointer checks L3: the stored state of a loss consists of numbers.
func TestStoredStateHoldsNoPointer(t *testing.T) {
	require.Empty(t, pointers(reflect.TypeFor[loss.Cell](), "Cell"))
	require.Empty(t, pointers(reflect.TypeFor[loss.Exact](), "Exact"))
	require.Equal(t, []string{"Record.cells []loss.Cell"}, pointers(reflect.TypeFor[loss.Record](), "Record"))
	// In addition to its cells, the ledger has the set of losses and the running weights.
	require.Equal(t, []string{
		"Ledger.defs []loss.Def", "Ledger.cells []loss.Cell", "Ledger.weights []float64",
	}, pointers(reflect.TypeFor[loss.Ledger](), "Ledger"))
	require.Equal(t, []string{"Def.Name string"}, pointers(reflect.TypeFor[loss.Def](), "Def"))
	require.EqualValues(t, 536, reflect.TypeFor[loss.Exact]().Size())

	type hidden struct{ Keep [2]struct{ F func() } }
	require.Equal(t, []string{"x.Keep[].F func()"}, pointers(reflect.TypeFor[hidden](), "x"), "the test sees a closure")
}

// carriers reads the exported functions and methods of a package and lists the parameters that
// could carry a tensor: interfaces, type parameters, closures other than a merge of records,
// pointers and containers of other packages' types, and unknown types.
func carriers(t *testing.T, fset *token.FileSet, files []*ast.File) (found []string, functions int) {
	conf := types.Config{
		IgnoreFuncBodies: true,
		Error:            func(error) {}, // without an importer, types of other packages are unknown
	}
	pkg, _ := conf.Check("loss", fset, files, nil)
	var numbers func(types.Type, map[types.Type]bool) bool
	numbers = func(typ types.Type, seen map[types.Type]bool) bool {
		if seen[typ] {
			return true
		}
		seen[typ] = true
		switch u := types.Unalias(typ).(type) {
		case *types.Basic:
			return u.Kind() != types.Invalid && u.Kind() != types.UnsafePointer && u.Kind() != types.Uintptr
		case *types.Named:
			return u.Obj().Pkg() == pkg && numbers(u.Underlying(), seen)
		case *types.Pointer:
			return numbers(u.Elem(), seen)
		case *types.Slice:
			return numbers(u.Elem(), seen)
		case *types.Array:
			return numbers(u.Elem(), seen)
		case *types.Struct:
			for f := range u.Fields() {
				if !numbers(f.Type(), seen) {
					return false
				}
			}
			return true
		case *types.Signature: // func(*Record) error, which is called and not kept
			return u.TypeParams() == nil && u.String() == "func(*loss.Record) error"
		}
		return false
	}
	check := func(name string, sig *types.Signature) {
		functions++
		for p := range sig.Params().Variables() {
			if !numbers(p.Type(), map[types.Type]bool{}) {
				found = append(found, name+": "+p.Name()+" "+p.Type().String())
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		switch o := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			if o.Exported() {
				check(name, o.Signature())
			}
		case *types.TypeName:
			for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
				if o.Exported() && m.Obj().Exported() {
					check(name+"."+m.Obj().Name(), m.Obj().(*types.Func).Signature())
				}
			}
		}
	}
	return found, functions
}

// TestNothingAcceptsATensor checks L3: the package accepts only numbers.
func TestNothingAcceptsATensor(t *testing.T) {
	fset := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, p, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	found, functions := carriers(t, fset, files)
	require.Empty(t, found)
	require.GreaterOrEqual(t, functions, 15, "the exported functions were found")

	bad, err := parser.ParseFile(fset, "bad.go", `package loss
import "io"
type Record struct{ x float64 }
type Tensor struct{ v []any }
func A(x any) {}
func B[T any](x T) {}
func C(x []*Tensor) {}
func D(x func() float64) {}
func E(x io.Reader, ok float64, merge func(*Record) error) {}
func F(x map[int]int) {}
func (r *Record) G(x ...interface{ Item() float64 }) {}
`, 0)
	require.NoError(t, err)
	found, _ = carriers(t, fset, []*ast.File{bad})
	require.Len(t, found, 7, "the test sees every way in: %q", found)
}
