package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/memory/placement"
)

// pinwheel consists of four buffers around a fifth. No greedy order by size or time packs it tightly.
const pinwheel = `id,lower,upper,size
a,0,6,4
b,6,10,6
c,4,10,4
d,0,4,6
e,4,6,2
`

func TestPlace(t *testing.T) {
	stdout, stderr, status := weir(pinwheel, "place", "-")
	require.Empty(t, stderr)
	require.Equal(t, good, status)
	var keys []string
	for line := range strings.Lines(stdout) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		keys = append(keys, key)
		switch key {
		case "height", "lower_bound":
			require.Equal(t, "10", strings.TrimSpace(value))
		case "gap":
			require.Equal(t, "0.00 %", strings.TrimSpace(value))
		case "optimal", "feasible":
			require.Equal(t, "true", strings.TrimSpace(value))
		}
	}
	require.Equal(t, []string{"height", "lower_bound", "gap", "optimal", "feasible", "seconds", "method"}, keys)

	stdout, stderr, status = weir(pinwheel, "place", "-", "--json", "--memory", "12", "--seed", "7")
	require.Empty(t, stderr)
	require.Equal(t, good, status)
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &out))
	require.LessOrEqual(t, out["height"], 12.0)
	require.Equal(t, true, out["feasible"])
	require.Len(t, out, len(keys))
	for _, key := range keys {
		require.Contains(t, out, key)
	}
}

// The layout that -o writes has the printed height.
func TestPlaceWritesTheLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.csv")
	stdout, stderr, status := weir(pinwheel, "place", "-", "-o", path, "--json")
	require.Empty(t, stderr)
	require.Equal(t, good, status)
	var out placeOutcome
	require.NoError(t, json.Unmarshal([]byte(stdout), &out))

	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(written), "id,lower,upper,size,offset\na,0,6,4,"))
	in, err := minimalloc.Read(strings.NewReader(string(written)))
	require.NoError(t, err)
	height, err := placement.Check(&in.Problem, in.Offsets)
	require.NoError(t, err)
	require.Equal(t, out.Height, height)

	stdout, stderr, status = weir(pinwheel, "place", "-", "-o", "-")
	require.Empty(t, stderr)
	require.Equal(t, good, status)
	require.Equal(t, string(written), stdout)
	stdout, _, status = weir(stdout, "place", "-", "-o", "-") // existing offsets are replaced
	require.Equal(t, good, status)
	require.Equal(t, string(written), stdout)
}

// The time limit also ends the first greedy layout, which takes minutes if very many buffers
// are alive at once.
func TestPlaceInTime(t *testing.T) {
	var in strings.Builder
	in.WriteString("id,lower,upper,size\n")
	for i := range 20_000 {
		fmt.Fprintf(&in, "%d,%d,%d,%d\n", i, i, i+5_000+i*7919%5_000, 1+i*7907%100_000)
	}
	stdout, stderr, status := weir(in.String(), "place", "-", "--time", "1ms", "--json")
	require.Empty(t, stderr)
	require.Equal(t, good, status)
	var out placeOutcome
	require.NoError(t, json.Unmarshal([]byte(stdout), &out))
	require.Equal(t, "size classes in order of birth", out.Method)
	require.Less(t, out.Gap, 0.25)
}

func TestPlaceRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		in     string
		args   string
		stderr string
		status int
	}{
		"too small":        {pinwheel, "- --memory 9 -o -", "no layout within 9 bytes", atFault},
		"no columns":       {"a,b\n", "-", "<stdin>:1:1: ", misused},
		"negative size":    {"id,lower,upper,size\n0,1,2,-4\n", "-", "<stdin>:2:7: ", misused},
		"born after death": {"id,lower,upper,size\n0,3,2,4\n", "-", "<stdin>:2:5: ", misused},
		"overflow":         {"id,lower,upper,size\n0,1,2,9223372036854775807\n1,1,2,9\n", "-", "<stdin>:3:7: ", misused},
		"empty":            {"", "-", "<stdin>:1:1: ", misused},
		"missing":          {"", "missing.csv", "missing.csv", misused},
		"time":             {pinwheel, "- --time 0s", "give a time above 0", misused},
		"capacity":         {pinwheel, "- --memory none", "is no size", misused},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := weir(test.in, append([]string{"place"}, strings.Fields(test.args)...)...)
			require.Contains(t, stderr, test.stderr)
			require.Equal(t, test.status, status)
		})
	}
}
