//go:build !unix

package safetensors

// syncDir does nothing: these systems have no way to flush a directory.
func syncDir(string) error { return nil }
