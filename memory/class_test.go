package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

func TestClassNames(t *testing.T) {
	names := []string{
		"resident", "entry", "activation", "actgrad", "saved", "carry",
		"transfer", "workspace", "loss", "fp8", "unsharded",
	}
	require.Len(t, names, memory.NumClasses)
	for i, name := range names {
		require.Equal(t, name, memory.Class(i).String())
		class, ok := memory.ParseClass(name)
		require.True(t, ok)
		require.Equal(t, memory.Class(i), class)
	}
	require.Equal(t, "class(?)", memory.Class(memory.NumClasses).String())
	for _, name := range []string{"", "Resident", "class(?)"} {
		_, ok := memory.ParseClass(name)
		require.False(t, ok, name)
	}
}

func TestByClassTotal(t *testing.T) {
	var b memory.ByClass
	require.Zero(t, b.Total())
	for i := range b {
		b[i] = 1 << i
	}
	require.EqualValues(t, 1<<memory.NumClasses-1, b.Total())
}
