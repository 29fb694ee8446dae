//go:build unix

package corpus_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

// Read reads a pipe once it has a writer, and stops waiting when the context ends.
func TestReadPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err := corpus.Read(ctx, pipe, 100, nil)
	require.ErrorIs(t, err, context.Canceled)

	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // releases the reader that is still waiting
	require.NoError(t, err)
	_, err = writer.WriteString("text\n")
	require.NoError(t, err)
	require.NoError(t, writer.Close())

	pipe += "2"
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	go func() {
		if writer, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
			_, _ = writer.WriteString("text\n")
			_ = writer.Close()
		}
	}()
	text, err := corpus.Read(t.Context(), pipe, 100, nil)
	require.NoError(t, err)
	require.Equal(t, "text\n", string(text.Bytes))
}
