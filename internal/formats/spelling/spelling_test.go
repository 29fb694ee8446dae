package spelling_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/formats/spelling"
)

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "xabc", 1}, {"xabc", "abc", 1}, {"abc", "ac", 1},
		{"kitten", "sitting", 3}, {"saturday", "sunday", 3},
	} {
		require.Equal(t, test.want, spelling.Distance(test.a, test.b), "%s %s", test.a, test.b)
	}
}
