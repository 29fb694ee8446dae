package checkpoint_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// writeTo is an environment variable that makes this program write checkpoints into a folder
// until it is killed.
const writeTo = "WEIR_CHECKPOINT_WRITE_TO"

func init() {
	dir := os.Getenv(writeTo)
	if dir == "" {
		return
	}
	for i := 0; ; i++ {
		values := make([]float32, 10_000)
		for j := range values {
			values[j] = float32(i)
		}
		state := checkpoint.State{Step: int64(i % 5), Metadata: map[string]string{"value": strconv.Itoa(i)}}
		err := checkpoint.Save(dir, state, safetensors.Of("values", []int{len(values)}, values))
		if err == nil {
			err = checkpoint.Prune(dir, 2)
		}
		if err == nil && i == 0 {
			_, err = os.Stdout.WriteString("1")
		}
		if err != nil {
			panic(err)
		}
	}
}

// Whenever the writer is killed, there is a whole and consistent checkpoint, and the next
// writer can continue.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run", "^$")
		cmd.Env = append(os.Environ(), writeTo+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1)) // it has written one
		require.NoError(t, err)
		time.Sleep(time.Duration(random.IntN(40_000)) * time.Microsecond) // time of another process
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		c, err := checkpoint.Open(dir)
		require.NoError(t, err, "round %d", round)
		values := make([]float32, 10_000)
		require.NoError(t, checkpoint.Read(c, "values", []int{len(values)}, values))
		for _, v := range values {
			require.Equal(t, c.Metadata["value"], strconv.Itoa(int(v)))
		}
		require.NoError(t, c.Close())
	}
	// Unfinished files are removed when the same step is written again.
	folders, err := filepath.Glob(filepath.Join(dir, "step-*"))
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	require.NoError(t, os.WriteFile(filepath.Join(folders[0], ".rank-0-of-1-AAAAAAAA.safetensors.weir-A.tmp"), nil, 0o600))
	for step := range int64(5) {
		require.NoError(t, checkpoint.Save(dir, checkpoint.State{Step: step}, safetensors.Of("values", []int{1}, []float32{1})))
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
