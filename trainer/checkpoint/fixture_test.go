package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestFixtures compares a manifest, with the hashes of its shards, with those that earlier versions wrote. The
// random part of the shards' names is left out. Version 1 has no pieces.
func TestFixtures(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 7, 3)
	folder := filepath.Join(dir, "step-0000000007")
	path := filepath.Join(folder, "manifest.json")
	testkit.Format{
		Name: "manifest-%d.json", Mark: "\"version\": %d", Number: 2, Older: []int{1}, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, name := range regexp.MustCompile(`(rank-\d-of-2)-\w+`).FindAllSubmatch(text, -1) {
				require.NoError(t, os.Rename(filepath.Join(folder, string(name[0])+".safetensors"), filepath.Join(folder, string(name[1])+".safetensors")))
				text = bytes.Replace(text, name[0], name[1], 1)
			}
			own := text[:bytes.Index(text, []byte("shards"))]
			zeros := []byte(strings.Repeat("0", 64))
			copy(own[bytes.Index(own, []byte(`"sha256": "`))+len(`"sha256": "`):], zeros)
			return bytes.Replace(text, zeros, fmt.Appendf(nil, "%x", sha256.Sum256(text)), 1)
		},
		Read: func(text []byte) error {
			require.NoError(t, os.WriteFile(path, text, 0o666))
			_, first, err := read(dir)
			if err == nil {
				require.Equal(t, float32(3), first)
			}
			return err
		},
	}.Test(t)
}
