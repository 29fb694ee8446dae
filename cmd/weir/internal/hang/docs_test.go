package hang_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/hang"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestDocumentedDumps compares the dumps that docs/hang.md reads with the simulation that makes them: two
// pipelines of 1F1B, in which rank 5 stops before 2F7 of its third step. -update rewrites them.
func TestDocumentedDumps(t *testing.T) {
	m := makeJob(planNamed(t, "1f1b", 4), 2, 3, false)
	r := m.ranks[5]
	for i, item := range r.items {
		if item.step == 2 && item.group == nil && item.action.String() == "2F7" {
			m.faults = []*planted{{kind: "stopped", rank: 5, item: i}}
		}
	}
	require.False(t, m.run())
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, r := range m.ranks {
		finish(m, r.dumpRank)
		b := r.Pickle()
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("_dump_%d", r.Rank), Size: int64(len(b)), Mode: 0o600}))
		_, err := w.Write(b)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	const path = "../../../../docs/hang/dumps.tar.gz"
	if *testkit.Update {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write(archive.Bytes())
		require.NoError(t, err)
		require.NoError(t, z.Close())
		require.NoError(t, os.WriteFile(path, packed.Bytes(), 0o644))
	}
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	require.NoError(t, err)
	kept, err := io.ReadAll(z)
	require.NoError(t, err)
	require.True(t, bytes.Equal(archive.Bytes(), kept), "go test ./cmd/weir/internal/hang -run DocumentedDumps -update writes them anew")

	var svg bytes.Buffer
	require.NoError(t, hang.Dumps(m.dumps(t, false), m.plan).SVG(&svg))
	const picture = "../../../../docs/hang/front.svg"
	if *testkit.Update {
		require.NoError(t, os.WriteFile(picture, svg.Bytes(), 0o644))
	}
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Equal(t, string(drawn), svg.String())
}

// finish leaves operations pending that would complete after the end.
func finish(m *made, r *dumpRank) {
	for _, op := range r.Ops {
		if op.Completed > m.time() {
			op.Completed = 0
		}
	}
}

// TestWriteDumps writes dumps of 1,024 ranks with 2,000 entries each into $WEIR_WRITE_DUMPS, for measurements
// of the command.
func TestWriteDumps(t *testing.T) {
	folder := os.Getenv("WEIR_WRITE_DUMPS")
	if folder == "" {
		t.Skip("WEIR_WRITE_DUMPS names no folder")
	}
	m := makeJob(planNamed(t, "1f1b", 8), 128, 64, false)
	m.faults = []*planted{{kind: "stopped", rank: 272, item: len(m.ranks[272].items) - 50}}
	m.run()
	for _, r := range m.ranks {
		r.Ring = 2000
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("dump_%d", r.Rank)), r.Pickle(), 0o600))
	}
}
