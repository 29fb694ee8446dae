package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// A file of 200 MB is read in parts. A larger one is refused before it is read.
func TestLargeFile(t *testing.T) {
	if !*testkit.Long {
		t.Skip("reading 200 MB takes minutes: -long does")
	}
	path := filepath.Join(t.TempDir(), "large.jsonl")
	file, err := os.Create(path)
	require.NoError(t, err)
	line := []byte(`{"step": 0, "rank": 0, "microbatch": 0, "allocated": 110072960, "reserved": 110579712, "peak": 110072960}` + "\n")
	for size := 0; size < 200e6-2*len(line); {
		n, err := file.Write(line)
		require.NoError(t, err)
		size += n
	}
	w := open(t, "")
	w.drop(path)
	require.Regexp(t, `^Done in`, w.text("#read-status"), w.text("#output"))
	t.Log(w.text("#read-status"))
	_, err = file.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	w.drop(path)
	require.Contains(t, w.text("#read-status"), "200.00 MB at most")
}
