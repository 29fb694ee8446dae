package testkit

import (
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// TB has the methods of a test that the helpers for files call.
type TB interface {
	require.TestingT
	Helper()
	TempDir() string
}

// Read returns the content of a file.
func Read(t TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// File writes a file in a new folder that is removed after the test, and returns its path.
func File[Content string | []byte](t TB, name string, content Content) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Golden compares a text with a file, or writes the file with -update.
func Golden(t TB, path, text string) {
	t.Helper()
	if *Update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	require.Equal(t, Read(t, path), text, "-update writes %s", path)
}
