package disk_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/tests/sim/disk"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

var (
	seed    = flag.Uint64("seed", 0, "the first seed; 0 is the time")
	lasting = flag.Duration("for", 2*time.Second, "how long TestCheckpoints goes on, after 100 seeds")
	ignores = flag.String("ignores", "", "files and folders whose names begin so are never flushed")
	mounted = flag.Bool("mounted", false, "the packages are built on package disk: set by the test itself")
)

// locks replaces lock_flock.go, free replaces free_statfs.go.
const (
	locks = `package atomicfile

import (
	"io/fs"
	os "github.com/weir-ml/weir/tests/sim/disk"
)

const renamesOpen, nonblocking = true, 0

var errLocked = os.ErrLocked

func lock(f *os.File) error { return f.Lock() }

func copyOwner(*os.File, fs.FileInfo) {}
`
	free = "package atomicfile\n\nfunc Free(string) (bytes int64, known bool) { return 0, false }\n"
)

// build builds this test over packages that call disk instead of os.
func build(t *testing.T) (suite string) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	work := t.TempDir()
	replaced := map[string]string{}
	for _, folder := range []string{"trainer/checkpoint", "trainer/atomicfile"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			switch base := filepath.Base(file); {
			case strings.HasSuffix(base, "_test.go"):
				continue
			case base == "stream.go" || base == "lock_other.go" || base == "free_other.go":
				replaced[file] = "" // it is not called here
				continue
			case base == "lock_flock.go":
				text = []byte(locks)
			case base == "free_statfs.go":
				text = []byte(free)
			}
			changed := strings.Replace(string(text), "\t\"os\"\n", "\tos \"github.com/weir-ml/weir/tests/sim/disk\"\n", 1)
			replaced[file] = filepath.Join(work, fmt.Sprintf("%d.go", len(replaced)))
			require.NoError(t, os.WriteFile(replaced[file], []byte(changed), 0o600))
		}
	}
	table, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	overlay := filepath.Join(work, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, table, 0o600))
	suite = filepath.Join(work, "suite")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", suite, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return suite
}

// TestCheckpoints writes, reads and removes checkpoints on disks that fail. It also requires that
// the test fails on a disk that ignores some of the flushes.
func TestCheckpoints(t *testing.T) {
	if !*mounted {
		suite := build(t)
		run := func(more ...string) (string, error) {
			out, err := exec.Command(suite, append([]string{"-test.run", "TestCheckpoints", "-test.v", "-mounted", "-seed", fmt.Sprint(*seed), "-for", fmt.Sprint(*lasting)}, more...)...).CombinedOutput()
			return string(out), err
		}
		out, err := run()
		t.Logf("%s", out)
		require.NoError(t, err)
		for _, what := range []string{"rank-", "manifest", "latest", "step-", "a", "runs"} {
			out, err := run("-ignores", what)
			require.Error(t, err, "without a flush of %s:\n%s", what, out)
			require.Contains(t, out, "seed ", what)
		}
		return
	}
	began, first := time.Now(), *seed
	if first == 0 {
		first = uint64(began.UnixNano())
	}
	var sum tally
	n := first
	for ; n-first < 100 || time.Since(began) < *lasting; n++ { // even on a slow machine, enough runs to find data that is not flushed
		require.NoError(t, simulate(n, &sum), "seed %d", n)
	}
	t.Logf("seeds %d to %d: %+v", first, n-1, sum)
	require.Positive(t, sum.Calls, "the packages are built on os")
}

// tally counts the events.
type tally struct{ Saves, Acknowledged, Calls, Restarts, PowerLost, Read int }

const dir = "/runs/a"

// simulate runs a trainer on a disk and returns an error if a checkpoint lost data.
func simulate(seed uint64, sum *tally) error {
	random := rand.New(rand.NewPCG(seed, 0))
	d := disk.Mount(random)
	if err := disk.MkdirAll("/runs", 0o777); err != nil {
		return err
	}
	for _, name := range []string{"/", "/runs"} { // they existed before
		f, err := disk.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	d.Ignores = *ignores
	acknowledged, tried := int64(-1), []int64{}
	calls := 40
	for step := range int64(2 + random.IntN(8)) {
		d.Reset()
		if random.IntN(4) > 0 {
			d.At, d.Fault = 1+random.IntN(calls+calls/8), disk.Fault(random.IntN(int(disk.NumFaults)))
		}
		prunes, keep := random.IntN(2) == 0, 1+random.IntN(2)
		tried = append(tried, step)
		sum.Saves++
		err, killed := survive(func() error {
			if err := save(step, 1+int(seed%2)); err != nil {
				return err
			}
			acknowledged, tried = step, nil
			sum.Acknowledged++
			if prunes {
				_ = checkpoint.Prune(dir, keep)
			}
			return nil
		})
		if d.At == 0 && err != nil {
			return fmt.Errorf("step %d on a disk without a fault: %w", step, err)
		}
		sum.Calls += d.Calls()
		if d.At == 0 || d.Calls() < d.At {
			calls = max(d.Calls(), 1)
		}
		if killed {
			sum.Restarts++
			if d.Fault == disk.NoPower {
				sum.PowerLost++
			}
			d.Restart()
			if random.IntN(2) == 0 { // the next run begins by reading the checkpoint
				_ = checkpoint.Prune(dir, keep)
			}
		}
		d.Reset()
		if err := opens(acknowledged, tried); err != nil {
			return fmt.Errorf("step %d, fault %d at call %d: %w", step, d.Fault, d.At, err)
		}
		sum.Read++
	}
	return nil
}

// survive calls f, returns its error and reports whether it was killed.
func survive(f func() error) (err error, killed bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, killed = p.(disk.Killed); !killed {
				panic(p)
			}
		}
	}()
	return f(), false
}

// values returns the values of a tensor of a rank.
func values(step int64, rank int) []float32 {
	return slices.Repeat([]float32{float32(step), float32(rank)}, 20)
}

// save writes a checkpoint of some ranks.
func save(step int64, ranks int) error {
	var shards []checkpoint.Shard
	for rank := range ranks {
		shard, err := checkpoint.WriteShard(dir, step, rank, ranks, checkpoint.Whole(safetensors.Of(fmt.Sprint("w", rank), []int{40}, values(step, rank)))...)
		if err != nil {
			return err
		}
		shards = append(shards, shard)
	}
	return checkpoint.Commit(dir, checkpoint.State{Step: step}, shards...)
}

// opens requires that the last acknowledged checkpoint, or one that was tried after it, can be read.
// If none was acknowledged, there may be none.
func opens(acknowledged int64, tried []int64) error {
	c, err := checkpoint.Open(dir)
	if err != nil {
		if acknowledged < 0 && errors.Is(err, checkpoint.ErrNone) {
			return nil
		}
		return fmt.Errorf("checkpoint %d was written: %w", acknowledged, err)
	}
	defer c.Close()
	if c.Step != acknowledged && !slices.Contains(tried, c.Step) {
		return fmt.Errorf("the checkpoint of step %d is there, not %d or one of %v", c.Step, acknowledged, tried)
	}
	for rank := range c.Shards() {
		x := make([]float32, 40)
		if err := checkpoint.Read(c, fmt.Sprint("w", rank), []int{40}, x); err != nil {
			return err
		}
		if !slices.Equal(x, values(c.Step, rank)) {
			return fmt.Errorf("step %d: rank %d has other values", c.Step, rank)
		}
	}
	return nil
}
