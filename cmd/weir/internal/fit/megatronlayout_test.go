package fit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
)

// TestReadMegatronLayout reads layouts as parse_str_to_list of megatron-core 0.20.0 does. The first three are from its
// docs/user-guide/features/pipeline_parallel_layout.md and its docstring, and the faults are those of
// validate_layer_layout.
func TestReadMegatronLayout(t *testing.T) {
	for _, test := range []struct {
		layers, further, ranks, layout string
		cut                            []int
		stage                          int
		written                        string // "" if as read
		fault                          string
	}{
		{"3", "0", "2", "Et|ttL", []int{1, 2}, 0, "Et|t*2L", ""},
		{"61", "1", "8", "Ettt|(tt|)*29,m|L", append(append([]int{3}, twos(29)...), 0, 0), 30, "", ""},
		{"6", "1", "4", "E|(t|)*6mL", []int{0, 1, 1, 1, 1, 1, 1, 0}, 0, "E|t|t|t|t|t|t|mL", ""},
		{"4", "1", "4", "Et*2|t*2|m|L", []int{2, 2, 0, 0}, 2, "Et*2|t*2|m|L", ""},
		{"4", "0", "2", "tE*1|t*3L", nil, 0, "", "expected one E, before all else"},
		{"10", "2", "2", "E|(t|)*10m|m|m|LL|LL", nil, 0, "", "found 4 losses; Megatron-LM takes one"}, // proposed in Megatron-LM#5318
		{"10", "2", "2", "E|(t|)*10m|m|t|L", nil, 0, "", "expected all t before the first m"},
		{"9", "2", "1", "E|(t|)*9m|m|L", nil, 0, "", "expected all m on one stage"},
		{"9", "0", "2", "E|(t|)*8L", nil, 0, "", "found 8 layers t, and --num-layers is 9"},
		{"8", "1", "2", "E|(t|)*7tL", nil, 0, "", "found 0 layers m, and --mtp-num-layers is 1"},
		{"4", "0", "3", "Et|t|t|tL", nil, 0, "", "found 4 stages, which do not divide over 3 ranks"},
		{"4", "1", "2", "Et|t|t*2m|L", nil, 0, "", "expected m on the last virtual stage of a rank that is not the first one"},
		{"4", "0", "2", "Et|txL", nil, 0, "", "expected E, t, m, L and |"},
		{"4", "0", "2", "E(t*999999999)*999999999|L", nil, 0, "", "expected E, t, m, L and |"},
	} {
		text := "--num-layers " + test.layers + " --hidden-size 64 --num-attention-heads 4 --vocab-size 1000 --max-position-embeddings 128 --seq-length 128" +
			" --mtp-num-layers " + test.further + " --pipeline-model-parallel-size " + test.ranks + " --pipeline-model-parallel-layout '" + test.layout + "'"
		config, err := fit.Read(strings.NewReader(text), nil)
		if test.fault != "" {
			require.ErrorIs(t, err, fit.ErrModel, test.layout)
			require.ErrorContains(t, err, test.fault)
			continue
		}
		require.NoError(t, err, test.layout)
		require.Equal(t, test.cut, config.Cut)
		require.Equal(t, test.stage, config.Setup.FurtherStage)
		require.NotContains(t, strings.Join(config.Unread, " "), "layout")
		if test.written != "" {
			require.Equal(t, test.written, fit.MegatronLayout(config.Cut, config.Model.MTP, config.Setup.FurtherStage))
		}
	}
}

func twos(n int) (list []int) {
	for range n {
		list = append(list, 2)
	}
	return list
}
