package lifetime_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestALossCannotBeATensor compiles two ways to record a loss: numbers compile, and any value
// that could hold a graph does not (L3).
func TestALossCannotBeATensor(t *testing.T) {
	testkit.Slow(t)
	files := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(files, "source", nil)}
	compile := func(statement string) error {
		source := `package p
import batchctx "github.com/weir-ml/weir/context"
type Tensor struct { Data []float32; Grad func() }
func record(mb batchctx.Microbatch[*Tensor], loss *Tensor) { ` + statement + ` }`
		file, err := parser.ParseFile(files, "p.go", source, 0)
		require.NoError(t, err)
		_, err = config.Check("p", files, []*ast.File{file}, nil)
		return err
	}
	require.NoError(t, compile(`mb.Loss(1, float64(loss.Data[0]), 1)`))
	require.ErrorContains(t, compile(`mb.Loss(1, loss, 1)`), "cannot use loss")
	require.ErrorContains(t, compile(`mb.Loss(1, 1, loss)`), "cannot use loss")
	require.ErrorContains(t, compile(`var kept any = loss; mb.Loss(1, kept, 1)`), "cannot use kept")
}
