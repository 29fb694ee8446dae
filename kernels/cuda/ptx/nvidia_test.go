package ptx_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	interpreter "github.com/weir-ml/weir/kernels/cuda/internal/ptx"
	"github.com/weir-ml/weir/kernels/cuda/ptx"
)

// .ci/nvidia installs these programs and passes them.
var (
	assemblers = flag.String("ptxas", "", "NVIDIA's assemblers, separated by commas")
	verifier   = flag.String("sentryward", "", "the verifier of PTX")
)

// multiprocessors has the limits of a multiprocessor by architecture, from the table of technical
// specifications in the CUDA C++ Programming Guide: bytes of shared memory, warps and blocks. All of
// them have 65,536 registers.
var multiprocessors = map[string]struct{ shared, warps, blocks int }{
	"sm_80": {164 << 10, 64, 32}, "sm_86": {100 << 10, 48, 16}, "sm_89": {100 << 10, 48, 24}, "sm_90": {228 << 10, 64, 32},
	"sm_90a": {228 << 10, 64, 32}, "sm_100": {228 << 10, 64, 32}, "sm_100a": {228 << 10, 64, 32}, "sm_103": {228 << 10, 64, 32}, "sm_120": {100 << 10, 48, 24},
}

// tiled lists the kernels that compute in tiles, each with its file and its number of threads. words has
// the arguments that decide which path a launch of one block takes. sentryward treats the other arguments
// as symbols, and cannot verify more than one block. The first block of queries reads one tile of keys, so
// it does not need the barriers in last, which protect a tile from the next one.
var tiled = []struct {
	name, file string
	threads    int
	words      map[int]int
	last       int
}{
	{"matmul", "matrix", 256, map[int]int{4: 0, 5: 64, 6: 64, 7: 32, 8: 0, 9: 0, 10: 0}, 0},
	{"matmul_bf16", "tensor", 128, map[int]int{4: 0, 5: 64, 6: 64, 7: 64, 8: 0, 9: 0, 10: 0}, 0},
	{"quantized_matmul", "quantize", 256, map[int]int{4: 0, 5: 0, 9: 0, 10: 0, 11: 0, 12: 16, 13: 16, 14: 40, 15: 128, 16: 0}, 0},
	{"attention", "attention", 64, map[int]int{3: 40, 4: 32}, 1},
	{"attention_queries", "attention", 64, map[int]int{5: 40, 6: 32}, 1},
	{"attention_keys", "attention", 64, map[int]int{5: 40, 6: 32}, 0},
}

// usage has the registers and bytes of shared memory that an assembler reports for a kernel.
type usage struct{ registers, shared int }

// occupancy returns the share of a multiprocessor's warps that the blocks of a kernel fill. Registers
// are allocated to warps in units of 256, and warps in units of four; a block has 1 KiB of shared memory
// more than it declares.
func (u usage) occupancy(arch string, threads int) float64 {
	m, warps := multiprocessors[arch], threads/32
	perWarp := (32*u.registers + 255) / 256 * 256
	blocks := min(m.blocks, m.warps/warps, 65536/perWarp/4*4/warps, m.shared/((u.shared+1024+127)/128*128))
	return float64(blocks*warps) / float64(m.warps)
}

var (
	entry    = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spilled  = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	measured = regexp.MustCompile(`Used (\d+) registers(?:.*?, (\d+) bytes smem)?`)
)

// assemble assembles a file and returns the usage of each kernel. No register may be spilled.
func assemble(t *testing.T, ptxas, arch, file string) map[string]usage {
	text, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", os.DevNull, file).CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.NotContains(t, string(text), "warning")
	all, name := map[string]usage{}, ""
	for line := range strings.Lines(string(text)) {
		if of := entry.FindStringSubmatch(line); of != nil {
			name = of[1]
		}
		if bytes := spilled.FindStringSubmatch(line); bytes != nil {
			require.Equal(t, []string{"0", "0", "0"}, bytes[1:], "%s, %s: %s", name, arch, line)
		}
		if words := measured.FindStringSubmatch(line); words != nil {
			registers, _ := strconv.Atoi(words[1])
			shared, _ := strconv.Atoi(words[2])
			all[name] = usage{registers, shared}
		}
	}
	return all
}

// TestAssembled assembles every kernel for every architecture. docs/dev/gpu.md has the table of those that
// compute in tiles.
func TestAssembled(t *testing.T) {
	if *assemblers == "" {
		t.Skip("-ptxas is not given: run .ci/nvidia")
	}
	folder := files(t)
	names, err := fs.Glob(ptx.Files, "*.ptx")
	require.NoError(t, err)
	head, rule, rows := "| kernel | threads | shared bytes |", "|---|--:|--:|", make([]string, len(tiled))
	for ptxas := range strings.SplitSeq(*assemblers, ",") {
		said, err := exec.Command(ptxas, "--version").Output()
		require.NoError(t, err)
		version := regexp.MustCompile(`release ([\d.]+)`).FindStringSubmatch(string(said))[1]
		usages, most := map[string]map[string]usage{}, 0 // by architecture and kernel
		for arch := range multiprocessors {
			usages[arch] = map[string]usage{}
			for _, name := range names {
				maps.Copy(usages[arch], assemble(t, ptxas, arch, filepath.Join(folder, name)))
				text, err := fs.ReadFile(ptx.Files, name)
				require.NoError(t, err)
				m, err := interpreter.Parse(text)
				require.NoError(t, err)
				for _, k := range m.Kernels {
					require.Contains(t, usages[arch], k.Name)
					most = max(most, usages[arch][k.Name].registers)
				}
			}
		}
		t.Logf("ptxas %s: %d kernels for each of %d architectures, at most %d registers", version, len(usages["sm_80"]), len(usages), most)
		head += fmt.Sprintf(" registers of ptxas %s | occupancy |", version)
		rule += "---|---|"
		for i, k := range tiled {
			var registers, occupancies []string
			for _, arch := range []string{"sm_80", "sm_90", "sm_120"} {
				u := usages[arch][k.name]
				registers = append(registers, strconv.Itoa(u.registers))
				occupancies = append(occupancies, fmt.Sprintf("%.0f", 100*u.occupancy(arch, k.threads)))
			}
			if rows[i] == "" {
				rows[i] = fmt.Sprintf("| `%s` | %d | %d |", k.name, k.threads, usages["sm_80"][k.name].shared)
			}
			rows[i] += fmt.Sprintf(" %s | %s %% |", strings.Join(registers, ", "), strings.Join(occupancies, ", "))
		}
	}
	table := strings.Join(append([]string{head, rule}, rows...), "\n") + "\n"
	page, err := os.ReadFile("../../../docs/dev/gpu.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(page), table), "docs/dev/gpu.md has another table than this:\n%s", table)
}

// files writes the PTX to a folder.
func files(t *testing.T) string {
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, ptx.Files))
	return folder
}

// TestRaceFree proves, for one launch, that no two threads of a block access the same memory in an
// order that the barriers leave open, and that a kernel without one of its barriers is not proved.
// It takes minutes.
func TestRaceFree(t *testing.T) {
	if *verifier == "" {
		t.Skip("-sentryward is not given: run .ci/nvidia")
	}
	folder := files(t)
	for _, k := range tiled {
		t.Run(k.name, func(t *testing.T) {
			text, err := fs.ReadFile(ptx.Files, k.file+".ptx")
			require.NoError(t, err)
			lines := strings.Split(string(text), "\n")
			begin := slices.IndexFunc(lines, func(line string) bool { return strings.HasSuffix(line, ".entry "+k.name+"(") })
			end := begin + slices.Index(lines[begin:], "}")
			require.Equal(t, "race_free", verify(t, folder, k.name, lines, k.threads, k.words))
			results := map[string]int{}
			for i := begin; i < end; i++ {
				if strings.Contains(lines[i], "bar.sync") {
					results[verify(t, folder, k.name, slices.Delete(slices.Clone(lines), i, i+1), k.threads, k.words)]++
				}
			}
			require.Equal(t, k.last, results["race_free"], "without one of its barriers: %v", results)
		})
	}
}

// verify returns sentryward's result for a launch of one block.
func verify(t *testing.T, folder, name string, lines []string, threads int, words map[int]int) string {
	type argument struct {
		Parameter string `json:"parameter"`
		Type      string `json:"type"`
		Value     int    `json:"value"`
	}
	input := map[string]any{
		"schema": "spverify.kernel-input/v1", "entry": name,
		"launch": map[string][]int{"grid_dim": {1, 1, 1}, "block_dim": {threads, 1, 1}},
	}
	var arguments []argument
	for _, i := range slices.Sorted(maps.Keys(words)) {
		parameter := fmt.Sprintf("%s_param_%d", name, i)
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasSuffix(strings.TrimSuffix(line, ","), " "+parameter) })
		arguments = append(arguments, argument{parameter, strings.TrimPrefix(strings.Fields(lines[at])[1], "."), words[i]})
	}
	input["arguments"] = arguments
	text, err := json.Marshal(input)
	require.NoError(t, err)
	config, program := filepath.Join(folder, "input.json"), filepath.Join(folder, "kernel.ptx")
	require.NoError(t, os.WriteFile(config, text, 0o600))
	require.NoError(t, os.WriteFile(program, []byte(strings.Join(lines, "\n")), 0o600))
	out, err := exec.Command(*verifier, program, "--input", config, "--timeout", "3600").Output()
	require.NoError(t, err)
	var outcome struct {
		Result  string  `json:"result"`
		Seconds float64 `json:"elapsed_seconds"`
	}
	require.NoError(t, json.Unmarshal(out, &outcome))
	t.Logf("%s: %s, %.0f s", name, outcome.Result, outcome.Seconds)
	return outcome.Result
}
