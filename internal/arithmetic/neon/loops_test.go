package neon_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

var (
	program = flag.String("program", "", "program or library for arm64, to count the inner loops of; default: one with these kernels")
	symbols = flag.String("symbols", "^(sweep256x6|tile256x6|.*vector.tile)", "functions to count")
)

// A core that decodes 8 instructions per cycle, has 4 vector pipes whose multiply-adds take 4
// cycles, and loads 3 registers per cycle: Apple's Firestorm (as measured by D. Johnson) and
// Arm's Neoverse V1 and V2 (according to their software optimization guides).
const decoded, pipes, loaded, latency = 8, 4, 3, 4

// TestInnerLoops counts the instructions of inner loops with multiply-adds in a disassembly, and
// prints the fraction of a core's peak that follows from them. The numbers of the loops of the
// tallest tiles must stay the same.
func TestInnerLoops(t *testing.T) {
	if !*testkit.Long {
		t.Skip("it builds the tests of package kernels for arm64: run it with -long, as .ci/arm64 does")
	}
	if _, err := exec.LookPath(objdump); err != nil {
		t.Skip("no " + objdump + ": apt-get install binutils-aarch64-linux-gnu")
	}
	name := *program
	if name == "" {
		name = t.TempDir() + "/kernels"
		build := exec.Command("go", "test", "-c", "-vet=off", "-o", name, "../../../kernels")
		build.Env = append(os.Environ(), "GOARCH=arm64", "GOOS=linux", "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	cmd := exec.Command(objdump, "-d", name)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var table strings.Builder
	require.NoError(t, report(&table, out, regexp.MustCompile(*symbols)))
	require.NoError(t, cmd.Wait())
	t.Log("\n" + table.String())
	if *program == "" {
		for _, want := range []string{"| 36 | 24 | 67 % | 10 | 1.50 | 2.4 | 100 % |", "| 32 | 24 | 75 % | 6 | 1.33 | 4.0 | 100 % |"} {
			require.Contains(t, table.String(), want)
		}
	}
}

// instruction is a line of a disassembly.
type instruction struct {
	at     uint64
	name   string
	args   string
	target uint64 // of a jump
}

// loop holds the instruction counts of a loop.
type loop struct {
	at                                       uint64
	all, multiplyAdds, vectors, loads, ahead int
	sums                                     map[string]bool // registers that accumulate
}

// report writes a table of the loops in a disassembly.
func report(to io.Writer, from io.Reader, symbols *regexp.Regexp) error {
	fmt.Fprint(to, "| function and loop | instructions | FMA | share | registers loaded | instructions an FMA | FMA a loaded register | of the peak |\n|---|---|---|---|---|---|---|---|\n")
	header := regexp.MustCompile(`^[0-9a-f]+ <(.*)>:$`)
	jump := regexp.MustCompile(`^([0-9a-f]+) <`)
	var name string
	var body []instruction
	flush := func() {
		if symbols.MatchString(name) {
			for _, l := range loops(body) {
				fmt.Fprintln(to, l.row(name))
			}
		}
		body = body[:0]
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if m := header.FindStringSubmatch(lines.Text()); m != nil {
			flush()
			name = m[1]
			continue
		}
		f := strings.SplitN(lines.Text(), "\t", 4)
		if len(f) < 3 {
			continue
		}
		at, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(f[0]), ":"), 16, 64)
		if err != nil {
			continue
		}
		i := instruction{at: at, name: f[2]}
		if len(f) == 4 {
			i.args = f[3]
			operands := strings.Split(i.args, ", ")
			if m := jump.FindStringSubmatch(operands[len(operands)-1]); m != nil && (i.name[0] == 'b' || i.name[0] == 'c' || i.name[0] == 't') && i.name != "bl" {
				i.target, _ = strconv.ParseUint(m[1], 16, 64)
			}
		}
		body = append(body, i)
	}
	flush()
	return lines.Err()
}

// loops returns the loops, from the target of a backward jump to the jump, that contain
// multiply-adds and no other loop.
func loops(body []instruction) (found []loop) {
	var last uint64 // the start of the last loop
	for end, i := range body {
		if i.target == 0 || i.target > i.at || i.target < body[0].at || i.target <= last {
			continue
		}
		last = i.target
		l := loop{at: i.target - body[0].at, sums: map[string]bool{}}
		for _, i := range body[:end+1] {
			if i.at < last {
				continue
			}
			l.all++
			vector := strings.HasPrefix(i.args, "v")
			switch {
			case vector && (i.name == "fmla" || i.name == "fmls"):
				l.multiplyAdds++
				l.vectors++
				sum, _, _ := strings.Cut(i.args, ",")
				l.sums[sum] = true
			case strings.HasPrefix(i.name, "prf"):
				l.ahead++
			case strings.HasPrefix(i.name, "ld"):
				l.loads++
				if i.name == "ldp" {
					l.loads++
				}
			case vector:
				l.vectors++
			}
		}
		if l.multiplyAdds > 0 {
			found = append(found, l)
		}
	}
	return found
}

func (l loop) row(name string) string {
	all, fma, loads := float64(l.all), float64(l.multiplyAdds), float64(l.loads)
	cycles := max(all/decoded, float64(l.vectors)/pipes, (loads+float64(l.ahead))/loaded, fma/float64(len(l.sums))*latency)
	return fmt.Sprintf("| %s+%#x | %d | %d | %.0f %% | %d | %.2f | %.1f | %.0f %% |", name, l.at, l.all, l.multiplyAdds, 100*fma/all, l.loads, all/fma, fma/loads, 100*fma/pipes/cycles)
}
