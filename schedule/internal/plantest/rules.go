package plantest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

func Text(t require.TestingT, p *schedule.Plan) string {
	var b strings.Builder
	require.NoError(t, p.WriteText(&b))
	return b.String()
}
