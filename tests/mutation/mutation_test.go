package mutation

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	count  = flag.Int("mutants", 0, "how many mutants TestMutants runs; 0 is none, it then only builds one package")
	seed   = flag.Uint64("seed", 1, "which ones")
	state  = flag.String("state", "", "a file with a line for each mutant that has run, which is added to")
	folder = flag.String("folder", "", "only mutants of this package")
)

// packages are what is changed, and the suites that run against it, the quickest first.
var packages = []struct {
	folder string
	suites []string
}{
	{"loss", []string{"loss", "schedule/runner", "tests/parity"}},
	{"internal/frames", []string{"internal/frames", "schedule/runner", "tests/misuse", "tests/fault", "tests/lifetime", "tests/oracle"}},
	{"schedule/runner", []string{"schedule/runner", "tests/misuse", "tests/fault", "tests/sim", "tests/lifetime", "tests/oracle", "tests/memory"}},
	{"memory", []string{"memory", "schedule/runner", "tests/memory"}},
	{"schedule/check", []string{"schedule/check", "schedule/lower"}},
	{"fp8", []string{"fp8", "tests/lifetime"}},
}

// suite is a built suite.
type suite struct{ folder, binary string }

// build makes the suites of a package with all its mutants in them. Mutants that do not
// compile are left out, by line.
func build(t *testing.T, root, work, folder string, names []string, first int) ([]Mutant, []suite) {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	without := map[string]bool{}
	for range 10 {
		replaced, short, name := map[string]string{}, map[string]string{}, ""
		var found []Mutant
		write := func(file, text string) {
			replaced[file] = filepath.Join(work, fmt.Sprintf("%s-%d.go", strings.ReplaceAll(folder, "/", "-"), len(replaced)))
			require.NoError(t, os.WriteFile(replaced[file], []byte(text), 0o600))
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(string(source), "//go:build") {
				continue
			}
			in, err := filepath.Rel(root, file)
			require.NoError(t, err)
			m := mutated{name: filepath.ToSlash(in), folder: folder, first: first + len(found), without: without, source: source}
			text, err := m.file(file)
			require.NoError(t, err)
			found = append(found, m.found...)
			name = regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(string(source))[1]
			write(file, string(text))
			short[replaced[file]] = m.name
		}
		write(filepath.Join(root, folder, "switchboard.go"), fmt.Sprintf(switchboard, name))
		table, err := json.Marshal(map[string]any{"Replace": replaced})
		require.NoError(t, err)
		overlay := filepath.Join(work, "overlay.json")
		require.NoError(t, os.WriteFile(overlay, table, 0o600))
		run := exec.Command("go", "build", "-gcflags=-e", "-overlay", overlay, "./"+folder)
		run.Dir = root
		out, err := run.CombinedOutput()
		if err == nil {
			var suites []suite
			for _, of := range names {
				s := suite{filepath.Join(root, of), filepath.Join(work, strings.ReplaceAll(folder+" "+of, "/", "-"))}
				run := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, "./"+of)
				run.Dir = root
				out, err := run.CombinedOutput()
				require.NoError(t, err, "%s", out)
				if failure := s.run(t, 0); failure == "" {
					suites = append(suites, s)
				} else {
					t.Logf("%s is left out: without a mutant, %s", of, failure)
				}
			}
			return found, suites
		}
		before := len(without)
		for _, place := range regexp.MustCompile(`(?m)^(\S+\.go:\d+):`).FindAllStringSubmatch(string(out), -1) {
			file, line, _ := strings.Cut(place[1], ":")
			without[short[filepath.Join(root, file)]+":"+line] = true
			without[short[file]+":"+line] = true
		}
		require.Greater(t, len(without), before, "%s", out)
	}
	t.Fatal("it does not build")
	return nil, nil
}

// most is how much memory a suite may take.
const most = 2 << 30

// run runs the suite with a mutant and returns what failed, "" where nothing did.
func (s suite) run(t *testing.T, number int) string {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, s.binary, "-test.failfast", "-test.short")
	run.Dir = s.folder
	run.Env = append(os.Environ(), fmt.Sprint("MUTANT=", number))
	var out strings.Builder
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	done := make(chan struct{})
	go func() { // a mutant may allocate for ever
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
			var pages, resident int64
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", run.Process.Pid)); err == nil {
				if _, err := fmt.Sscan(string(text), &pages, &resident); err == nil && resident*4096 > most {
					cancel()
				}
			}
		}
	}()
	err := run.Wait()
	close(done)
	if err == nil {
		return ""
	}
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return line
		}
	}
	return err.Error() // of time or memory, or an exit
}

// TestMutants runs mutants that the seed picks, and says which ones no suite has seen.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	work := t.TempDir()
	ran := map[string]string{}
	if text, err := os.ReadFile(*state); err == nil {
		for line := range strings.Lines(string(text)) {
			place, by, _ := strings.Cut(strings.TrimSpace(line), "\t")
			ran[place] = by
		}
	}
	var all []Mutant
	suites := map[string][]suite{}
	for _, p := range packages {
		if *folder != "" && p.folder != *folder || *count == 0 && p.folder != "loss" {
			continue
		}
		if *count == 0 {
			p.suites = p.suites[:1]
		}
		found, built := build(t, root, work, p.folder, p.suites, 1+len(all))
		require.NotEmpty(t, built)
		t.Logf("%s: %d mutants", p.folder, len(found))
		all, suites[p.folder] = append(all, found...), built
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	if *count == 0 { // one that is seen, to show that mutants are on
		i := slices.IndexFunc(all, func(m Mutant) bool { return strings.HasPrefix(m.Place, "loss/exact.go") })
		require.NotEmpty(t, suites["loss"][0].run(t, all[i].number), all[i].Place)
		return
	}
	killed, survived := 0, 0
	for _, m := range all[:min(*count, len(all))] {
		by, known := ran[m.Place]
		for _, s := range suites[m.folder] {
			if known {
				break
			}
			if failure := s.run(t, m.number); failure != "" {
				by = filepath.Base(s.folder) + " " + failure
				break
			}
		}
		if by != "" {
			killed++
		} else {
			survived++
			t.Logf("survived: %s", m.Place)
		}
		if *state != "" && !known {
			f, err := os.OpenFile(*state, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
			require.NoError(t, err)
			_, err = fmt.Fprintf(f, "%s\t%s\n", m.Place, by)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	low, high := interval(killed, killed+survived)
	t.Logf("%d of %d mutants were seen: %.1f %%, in [%.1f, %.1f] with 95 %% confidence", killed, killed+survived,
		100*float64(killed)/float64(killed+survived), 100*low, 100*high)
}

// interval is Wilson's, of a proportion of n.
func interval(hits, n int) (low, high float64) {
	const z = 1.96
	p, of := float64(hits)/float64(n), float64(n)
	middle, half := p+z*z/(2*of), z*math.Sqrt(p*(1-p)/of+z*z/(4*of*of))
	return (middle - half) / (1 + z*z/of), (middle + half) / (1 + z*z/of)
}
