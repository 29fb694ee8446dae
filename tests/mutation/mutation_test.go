package mutation

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	gobuild "go/build"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	count  = flag.Int("mutants", 0, "how many mutants of each package TestMutants runs; 0 is none, it then only builds one package")
	seed   = flag.Uint64("seed", 1, "which ones")
	state  = flag.String("state", "", "a file with a line for each mutant that has run, which is added to")
	folder = flag.String("folder", "", "only mutants of this package")
)

// packages lists the packages to change, with the suites that run against them, fastest first, and the
// build tag of each suite.
var packages = []struct {
	folder string
	suites []string
}{
	{"loss", []string{"loss", "schedule/runner", "tests/parity"}},
	{"context", []string{"context", "schedule/runner", "stages", "stages/transformer", "tests/misuse", "tests/lifetime"}},
	{"internal/engine/effects", []string{"internal/engine/effects", "schedule/runner", "tests/oracle", "tests/memory"}},
	{"internal/engine/frames", []string{"internal/engine/frames", "context", "schedule/runner", "tests/misuse", "tests/fault", "tests/lifetime", "tests/oracle"}},
	{"schedule/runner", []string{"schedule/runner", "tests/misuse", "tests/fault", "tests/sim", "tests/lifetime", "tests/oracle", "tests/memory"}},
	{"schedule/runner/internal/calls", []string{"schedule/runner", "tests/misuse", "tests/fault", "tests/lifetime", "tests/oracle"}},
	{"schedule/runner/internal/replicas", []string{"schedule/runner", "tests/sim", "tests/oracle"}},
	{"memory", []string{"memory", "memory invariants", "schedule/runner", "tests/memory"}},
	{"schedule/check", []string{"schedule/check", "schedule/lower"}},
	{"fp8", []string{"fp8", "tests/lifetime"}},
	{"kernels", []string{"kernels", "kernels/kerneltest", "stages/transformer"}},
}

// suite holds the tests of a folder, which are built and profiled when they are first needed.
type suite struct {
	folder, tag, overlay string
	binary               string
	tests                []test // the fastest first
}

// test holds the duration of a test without a mutant, and the mutants that it could detect.
type test struct {
	name    string
	takes   time.Duration
	reaches map[int]bool
}

// build builds a package with all its mutants, for its suites. Mutants that do not compile are
// omitted, by line.
func build(t *testing.T, root, work, folder string, names []string) ([]Mutant, []*suite) {
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
			if here, err := gobuild.Default.MatchFile(filepath.Split(file)); err != nil || !here || strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			in, err := filepath.Rel(root, file)
			require.NoError(t, err)
			m := mutated{name: filepath.ToSlash(in), folder: folder, first: 1 + len(found), without: without, source: source}
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
			var suites []*suite
			for _, of := range names {
				of, tag, _ := strings.Cut(of, " ")
				suites = append(suites, &suite{folder: filepath.Join(root, of), tag: tag, overlay: overlay})
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

// Limits of a run: its memory, and the duration of a test without a mutant.
const (
	most    = 2 << 30
	longest = time.Minute
)

// profile builds the suite and runs each test alone, without a mutant. It assumes that tests that
// fail or take too long detect no mutant.
func (s *suite) profile(t *testing.T) {
	s.binary = filepath.Join(t.TempDir(), "suite")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-tags", s.tag, "-overlay", s.overlay, "-o", s.binary, ".")
	build.Dir = s.folder
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	list := exec.Command(s.binary, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = s.folder
	names, err := list.Output()
	require.NoError(t, err)
	for name := range strings.Lines(string(names)) {
		one := test{name: strings.TrimSpace(name), reaches: map[int]bool{}}
		path, began := filepath.Join(t.TempDir(), "reached"), time.Now()
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		failure := s.run(t, 0, one.name, path, longest)
		if one.takes = time.Since(began); failure != "" {
			t.Logf("%s %s is left out: without a mutant, %s", s.folder, one.name, failure)
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			number, err := strconv.Atoi(strings.TrimSpace(line))
			require.NoError(t, err)
			one.reaches[number] = true
		}
		if len(one.reaches) > 0 {
			s.tests = append(s.tests, one)
		}
	}
	slices.SortStableFunc(s.tests, func(a, b test) int { return cmp.Compare(a.takes, b.takes) })
}

// kill runs the tests that reach a mutant, several at a time, and returns the failure, or "".
func (s *suite) kill(t *testing.T, number int) string {
	if s.binary == "" {
		s.profile(t)
	}
	var names []string
	var takes time.Duration
	atOnce := time.Second
	for i, one := range s.tests {
		if one.reaches[number] {
			names, takes = append(names, one.name), takes+one.takes
		}
		if last := i == len(s.tests)-1; len(names) > 0 && (takes > atOnce || last) {
			if failure := s.run(t, number, strings.Join(names, "|"), "", 20*time.Second+10*takes); failure != "" {
				return failure
			}
			names, takes, atOnce = nil, 0, 2*atOnce
		}
	}
	return ""
}

// run runs tests with a mutant and returns the failure, or "".
func (s *suite) run(t *testing.T, number int, tests, reached string, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	run := exec.CommandContext(ctx, s.binary, "-test.failfast", "-test.short", "-test.timeout=0", "-test.run", "^("+tests+")$")
	run.Dir = s.folder
	run.Env = append(os.Environ(), fmt.Sprint("MUTANT=", number), "REACHED="+reached)
	var out strings.Builder
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	done := make(chan struct{})
	go func() { // a mutant may allocate indefinitely
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
	return err.Error() // out of time or memory, or an exit
}

// TestMutants runs mutants selected by the seed, and reports those that no suite has detected.
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
	killed, total := 0, 0
	for _, p := range packages {
		if *folder != "" && p.folder != *folder || *count == 0 && p.folder != "loss" {
			continue
		}
		all, suites := build(t, root, work, p.folder, p.suites)
		if *count == 0 { // run one mutant that must be detected, to show that mutants are active
			i := slices.IndexFunc(all, func(m Mutant) bool { return strings.HasPrefix(m.Place, "loss/exact.go") })
			require.NotEmpty(t, suites[0].kill(t, all[i].number), all[i].Place)
			return
		}
		rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		chosen, seen := all[:min(*count, len(all))], 0
		for _, m := range chosen {
			by, known := ran[m.Place]
			for _, s := range suites {
				if known {
					break
				}
				if failure := s.kill(t, m.number); failure != "" {
					by = filepath.Base(s.folder) + " " + failure
					break
				}
			}
			if by != "" {
				seen++
			} else {
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
		killed, total = killed+seen, total+len(chosen)
		t.Logf("%s, of %d mutants: %s", p.folder, len(all), score(seen, len(chosen)))
	}
	t.Logf("all: %s", score(killed, total))
}

// score formats the detected fraction with its confidence interval.
func score(seen, of int) string {
	low, high := interval(seen, of)
	return fmt.Sprintf("%d of %d were seen: %.1f %%, in [%.1f, %.1f] with 95 %% confidence", seen, of, 100*float64(seen)/float64(of), 100*low, 100*high)
}

// interval returns Wilson's confidence interval, at 95 %, of the proportion hits/n.
func interval(hits, n int) (low, high float64) {
	const z = 1.96
	p, of := float64(hits)/float64(n), float64(n)
	middle, half := p+z*z/(2*of), z*math.Sqrt(p*(1-p)/of+z*z/(4*of*of))
	return (middle - half) / (1 + z*z/of), (middle + half) / (1 + z*z/of)
}
