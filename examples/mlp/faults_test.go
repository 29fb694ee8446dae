package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var long = flag.Bool("long", false, "plant faults in the program too, which builds it anew for each")

// TestFaults plants faults in the program, one at a time, and requires the reported error;
// pytorch/faults.py plants the same in the PyTorch trainer. A fault without an error is quiet.
func TestFaults(t *testing.T) {
	if !*long {
		t.Skip("it builds a program for each: -long")
	}
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	path, err := filepath.Abs("main.go")
	require.NoError(t, err)
	for _, fault := range []struct{ name, old, new, says string }{
		{"none", "", "", ""},
		{"a loss is kept", "mb.Loss(ring, entropy, rows)", "mb.Loss(ring, y, rows)",
			"cannot use y (variable of struct type T) as float64 value"},
		{"a loss's tensor is kept", "mb.Loss(ring, entropy, rows)", "mb.Loss(ring, entropy, rows)\n\t\tkept = append(kept, mb.Retain(y))",
			"microbatch 0"},
		{"a stage keeps its output", "mb.Save(result, mb.Retain(out[0]))", "mb.Save(result, mb.Retain(out[0]))\n\t\tkept = append(kept, mb.Retain(out[0]))",
			"microbatch 0"},
		{"a point is NaN", "radius := math.Hypot(x, y)", "if e.Index() == 12 {\n\t\t\t\tx = math.NaN()\n\t\t\t}\n\t\t\tradius := math.Hypot(x, y)",
			"microbatch 12"},
		{"a frozen stage is not declared so", "stages.Decl[T]{Frozen: true}", "stages.Decl[T]{}", ""},
		{"labels in another order on one rank", "uint64(e.Index())", "uint64((1-e.Rank()/3)*e.Index()+e.Rank()/3*(microbatches-1-e.Index()))", ""},
		{"one rank has half of the microbatches", "random := rand.New(rand.NewPCG(seed, uint64(e.Index())))", "if e.Rank() == 3 && e.Index() >= microbatches/2 {\n\t\t\treturn nil\n\t\t}\n\t\trandom := rand.New(rand.NewPCG(seed, uint64(e.Index())))",
			"microbatch 64"},
		{"the batch does not divide evenly", "e.Put(part, e.Must(devs[e.Rank()].Floats(memory.Entry, values...)))", "e.Put(part, e.Must(devs[e.Rank()].Floats(memory.Entry, values[e.Index()/(microbatches-1)*2:]...)))",
			"microbatch 127"},
		{"the update is forgotten", "result.Update(descend(trained))", "error(nil)", ""},
		{"a layer detaches its input", "if gradIn != nil {", "if gradIn != nil && w.name != \"layer2\" {",
			"layer2"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			require.Contains(t, string(program), fault.old)
			dir := t.TempDir()
			text := strings.Replace(strings.Replace(string(program), fault.old, fault.new, 1), "type (", "var kept []T\n\ntype (", 1)
			changed, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(changed, []byte(text), 0o666))
			replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, replaced, 0o666))
			out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, ".", "-steps", "50", "-run", filepath.Join(dir, "run")).CombinedOutput()
			t.Logf("%s", out)
			if fault.says == "" {
				require.NoError(t, err)
				require.Contains(t, string(out), "step 50")
				return
			}
			require.Error(t, err)
			require.Contains(t, string(out), fault.says)
		})
	}
}
