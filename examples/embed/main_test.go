package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/runner"
)

func Example() {
	main()
	// Output:
	// step 0  loss 18.0055  weight 2.401  growth per microbatch 0 bytes
	// step 1  loss  0.7185  weight 2.880  growth per microbatch 0 bytes
	// step 2  loss  0.0287  weight 2.976  growth per microbatch 0 bytes
	// step 3  loss  0.0011  weight 2.995  growth per microbatch 0 bytes
	// step 4  loss  0.0000  weight 2.999  growth per microbatch 0 bytes
	// step 5  loss  0.0000  weight 3.000  growth per microbatch 0 bytes
}

// TestANaNEndsTheProgram gives the program a point that is not a number: it reports that, and
// updates no weight.
func TestANaNEndsTheProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	const point = "float32(e.Index()%7) - 3"
	require.Contains(t, string(program), point)
	changed, overlay := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "overlay.json")
	nan := strings.NewReplacer(point, point+" + float32(math.NaN())", "import (", "import (\n\"math\"").Replace(string(program))
	require.NoError(t, os.WriteFile(changed, []byte(nan), 0o600))
	replaced, err := filepath.Abs("main.go")
	require.NoError(t, err)
	paths, err := json.Marshal(map[string]map[string]string{"Replace": {replaced: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, paths, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, ".").CombinedOutput()
	require.Error(t, err, "%s", out)
	require.Contains(t, string(out), runner.ErrSkipped.Error())
	require.NotContains(t, string(out), "step 0")
}
