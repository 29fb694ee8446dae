// Package layers checks the module as a whole. A package imports only packages of a lower layer,
// and the core only the standard library. Other tests check embedding, comments, pages, fixtures
// and sizes.
package layers

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/weir-ml/weir/"

// rooms gives every folder its layer, and the packages outside of the standard library that it may import. The
// longest matching prefix counts.
var rooms = []struct {
	path    string
	layer   int
	outside []string
}{
	{"internal/engine/invariants", 0, nil},
	{"internal/formats/diagnostic", -1, nil}, // the rules use it
	{"internal/testing/layers", 0, nil},
	{"internal/engine/turns", 0, nil},
	{"internal/formats/spelling", -2, nil}, // the catalog of schedules uses it
	{"internal/testing/testkit", 0, []string{"github.com/stretchr/testify"}},
	{"internal/testing/modeltest", 10, []string{"github.com/stretchr/testify"}},
	{"internal/arithmetic/cpufeature", 0, nil},
	{"kernels/cuda/internal/ptx", 0, nil},
	{"kernels/cuda/internal/fakecuda", 2, nil},
	{"internal/arithmetic/neon", -2, nil}, // the generator of internal/arithmetic/vector uses it
	{"internal/arithmetic/neon/translate", -1, nil},
	{"internal/arithmetic/vector", 0, nil},
	{"internal/arithmetic/gemm", 1, nil},
	{"internal/arithmetic/fmapeak", 1, nil},
	{"internal/arithmetic/float8", 1, nil},
	{"internal/formats/jsonfile", 1, []string{"github.com/go-json-experiment/json"}}, // a part of the standard library from Go 1.27 on
	{"internal/formats/chrometrace", 0, nil},
	{"internal/formats/pickle", 0, nil},
	{"internal/formats/unzip", 0, nil},
	{"cmd/weir/internal/flightrec", 1, nil},
	{"cmd/weir/internal/hang", 7, nil},
	{"memory", 1, nil},
	{"loss", 1, nil},
	{"internal/palette", 2, nil},
	{"schedule/internal/repeats", -1, nil}, // the rules use it
	{"schedule", 0, nil},
	{"schedule/internal/passes", 1, nil},
	{"schedule/waitgraph", 1, nil},
	{"schedule/check", 2, nil},
	{"schedule/lower", 3, nil},
	{"schedule/simulate", 3, nil},
	{"internal/testing/plantest", 4, []string{"github.com/stretchr/testify", "pgregory.net/rapid"}},
	{"internal/engine/effects", 1, nil}, // lower, simulate and draw read it
	{"internal/engine/frames", 2, nil},
	{"internal/engine/offload", 2, nil},
	{"context", 3, nil},
	{"kernels", 2, nil},
	{"stages", 4, nil},
	{"fp8", 4, nil},
	{"schedule/format", 4, []string{"github.com/go-json-experiment/json"}},
	{"memory/planning", 4, nil},
	{"schedule/layout", 5, nil},
	{"schedule/draw", 4, nil},
	{"schedule/choose", 4, nil},
	{"schedule/pack", 4, nil},
	{"schedule/slots", 4, nil},
	{"schedule/runner", 7, nil},
	{"schedule/runner/internal/calls", 5, nil},
	{"schedule/runner/internal/replicas", 6, nil},
	{"schedule/runner/record", 8, nil},
	{"transport", 3, nil},
	{"transport/internal/messages", 4, nil},
	{"transport/diagnosis", 4, nil},
	{"transport/local", 5, nil},
	{"transport/transporttest", 5, nil},
	{"transport/tcp", 6, nil},
	{"transport/mpi", 7, nil}, // on transport/tcp
	{"internal/placement/minimalloc", 2, nil},
	{"internal/placement/exact", 2, nil},
	{"internal/placement/instances", 2, nil},
	{"memory/memlog", 5, []string{"github.com/rs/zerolog"}},
	{"memory/memorytest", 4, nil},
	{"memory/snapshot", 4, nil},
	{"cmd/weir/internal/leaks", 5, nil},
	{"memory/cachingsim", 5, nil},
	{"stages/transformer", 9, nil},
	{"stages/stagetest", 8, nil},
	{"kernels/cuda/libcuda", 4, []string{"gorgonia.org/cu", "github.com/ebitengine/purego"}},
	{"kernels/cuda/cublas", 4, []string{"github.com/ebitengine/purego"}},
	{"kernels/kerneltest", 5, nil},
	{"kernels/cuda", 5, nil},
	{"kernels/cuda/driver", 0, nil},
	{"kernels/cuda/ptx", 4, nil},
	{"trainer/safetensors", 2, nil},
	{"trainer/atomicfile", 0, nil},
	{"trainer/report", 5, nil},
	{"trainer/checkpoint", 5, nil},
	{"trainer/corpus", 1, []string{"golang.org/x/exp/mmap"}},
	{"trainer/costs", 8, nil},
	{"trainer/job", 10, nil}, // on transport/mpi
	{"cmd/weir/internal/explain", 0, nil},
	{"cmd/weir/internal/fit", 8, nil},
	{"trainer/live", 0, nil},
	{"trainer/launch", 0, nil},
	{"trainer/metrics", 8, nil},
	{"trainer/steplog", 8, nil},
	{"trainer/rate", 0, nil},
	{"trainer/tensorboard", 0, nil},
	{"trainer/terminal", 0, []string{"golang.org/x/term"}},
	{"schedule/units", 0, nil},
	{"schedule/lengths", 0, nil},
	{"cmd/weir/internal/memrecords", 8, nil},
	{"internal/memreport", 6, nil}, // metrics has its page
	{"internal/release", 11, []string{"golang.org/x/mod"}},
	{"internal/release/site", 1, nil},
	{"cmd/weir/internal/raster", 1, []string{"golang.org/x/image"}},
	{"cmd/weir/internal/traces", 1, nil},
	{"cmd/weir/internal/traces/tracetest", 5, nil},
	{"cmd/weir/internal/timing", 5, nil},
	{"cmd/weir/internal/trainers", 5, nil},
	{"cmd", 11, []string{"github.com/alecthomas/kong", "github.com/jotaen/kong-completion", "github.com/posener/complete"}},
	{"examples", 11, nil},
	{"tests", 11, nil},
	{"tests/oracle", 3, nil}, // neither the planner nor the runner
}

func room(t *testing.T, path string) (layer int, outside []string) {
	t.Helper()
	best := -1
	for i, r := range rooms {
		if (path == r.path || strings.HasPrefix(path, r.path+"/")) && (best < 0 || len(r.path) > len(rooms[best].path)) {
			best = i
		}
	}
	require.GreaterOrEqual(t, best, 0, "package %s has no layer: give it one here", path)
	return rooms[best].layer, rooms[best].outside
}

func TestImportsPointDown(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}{{if eq .Name "oracle"}} {{join .TestImports " "}}{{end}}`, "./...")
	list.Dir = "../../.."
	out, err := list.Output()
	require.NoError(t, err)
	packages := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		path := strings.TrimPrefix(fields[0], module)
		layer, outside := room(t, path)
		packages++
		for _, imported := range fields[1:] {
			if inside, ours := strings.CutPrefix(imported, module); ours {
				below, _ := room(t, inside)
				if path == "schedule/check" || path == "tests/oracle" {
					require.NotEqual(t, "internal/engine/effects", inside, "%s must state lifetimes independently", path)
				}
				if layer == 11 && below == 11 {
					continue // the top may be cut into packages as it likes
				}
				require.Less(t, below, layer, "%s (layer %d) imports %s (layer %d)", path, layer, inside, below)
				continue
			}
			if !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
				continue // the standard library
			}
			allowed := false
			for _, prefix := range outside {
				allowed = allowed || strings.HasPrefix(imported, prefix)
			}
			require.True(t, allowed, "%s imports %s", path, imported)
		}
	}
	require.Greater(t, packages, 10)
}

// An example can be copied into another module: neither it nor its tests import what is
// internal here.
func TestExamplesCanBeCopied(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./examples/...")
	list.Dir = "../../.."
	out, err := list.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), module+"examples/train ")
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			require.NotContains(t, imported, "/internal/", "%s imports it", fields[0])
		}
	}
}
