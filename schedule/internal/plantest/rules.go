package plantest

import "flag"

import "strings"

import "github.com/stretchr/testify/require"

import "github.com/weir-ml/weir/schedule"

var (
	Update = flag.Bool("update", false, "rewrite the golden files")
	Long   = flag.Bool("long", false, "run what takes longer as well")
)

func Text(t require.TestingT, p *schedule.Plan) string {
	var b strings.Builder
	require.NoError(t, p.WriteText(&b))
	return b.String()
}
