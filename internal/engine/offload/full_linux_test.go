package offload_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/memory"
)

// TestFullDisk fills real file systems of 4 MiB: with fallocate (tmpfs), and without it (ext2). A layout that
// is too large is refused with the name of the folder, and leaves no reservation behind. A layout that fits
// keeps its space even if other files fill the disk.
func TestFullDisk(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, make([]byte, 4<<20), 0o600))
	for name, commands := range map[string][][]string{
		"tmpfs": {{"mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs"}},
		"ext2":  {{"mkfs.ext2", "-q", image}, {"mount", "-o", "loop", image}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for i, command := range commands {
				if i == len(commands)-1 {
					command = append(command, folder)
				}
				if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
					t.Skipf("no small file system, which needs root: %v: %v: %s", command, err, bytes.TrimSpace(out))
				}
			}
			t.Cleanup(func() { require.NoError(t, syscall.Unmount(folder, 0)) })

			file, err := offload.File(folder)
			require.NoError(t, err)
			m, err := offload.New(space{}, file, 0)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			err = m.SetLayout(lay(8 << 20))
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.ErrorIs(t, err, memory.ErrOutOfMemory)
			require.ErrorContains(t, err, "offload: the disk of "+folder)

			other := filepath.Join(folder, "other")
			require.NoError(t, os.WriteFile(other, make([]byte, 3<<20), 0o600), "the refused part is given back")
			require.NoError(t, os.Remove(other))
			require.NoError(t, m.SetLayout(lay(300_000)))
			full := os.WriteFile(other, make([]byte, 4<<20), 0o600)
			require.True(t, errors.Is(full, syscall.ENOSPC), "%v", full)
			require.NoError(t, m.Start(1))
			h := buffer(7, 300_000)
			number := store(t, m, 0, h)
			require.NoError(t, wait(m, number))
			clear(*h)
			require.NoError(t, m.Load(number, h))
			require.NoError(t, wait(m, number))
			require.Equal(t, buffer(7, 300_000), h)
		})
	}
}
