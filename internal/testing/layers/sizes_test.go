package layers

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goList runs go list for Linux on amd64 in the root of the module, and returns the words of its output.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	list := exec.Command("go", append([]string{"list"}, args...)...)
	list.Dir = "../../.."
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// codeLines counts the lines of the module's packages that are neither blank nor comments, without tests
// and without the folders left out.
func codeLines(t *testing.T, without []string, args ...string) (lines int) {
	const files = `{{if .Module}}{{if .Module.Main}}{{$p := .}}{{range .GoFiles}}{{$p.ImportPath}}/{{.}} {{end}}{{end}}{{end}}`
	for _, file := range goList(t, append([]string{"-f", files}, args...)...) {
		file = strings.TrimPrefix(file, module)
		if slices.ContainsFunc(without, func(folder string) bool { return strings.HasPrefix(file, folder+"/") }) {
			continue
		}
		text, err := os.ReadFile("../../../" + file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	return lines
}

// TestTheCoreStaysSmall limits the code that an embedder of the runner compiles, and the code of the
// library with its examples. The core has neither a planner of memory nor a simulator nor JSON; tests of
// the runner that need those are in other packages.
func TestTheCoreStaysSmall(t *testing.T) {
	const runner = "./schedule/runner"
	for _, path := range goList(t, "-deps", runner) {
		for _, part := range []string{"schedule/layout", "memory/placement", "schedule/simulate", "schedule/runner/record", "json"} {
			require.NotContains(t, path, part, "the runner depends on it")
		}
	}
	require.LessOrEqual(t, codeLines(t, nil, "-deps", runner), 21_200, "lines of what the runner imports")
	require.LessOrEqual(t, codeLines(t, []string{"cmd", "kernels/cuda"}, "./..."), 75_500, "lines of the module without cmd and kernels/cuda")
}

// TestDependenciesAreUsed requires that two packages still depend on the modules that were chosen for them.
func TestDependenciesAreUsed(t *testing.T) {
	require.Contains(t, goList(t, "-deps", "./trainer/corpus"), "golang.org/x/exp/mmap")
	require.Contains(t, goList(t, "-deps", "-tags", "cuda", "./kernels/cuda/libcuda"), "gorgonia.org/cu")
}
