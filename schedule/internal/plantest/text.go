package plantest

import "bytes"

import "io"

// Endless is an endless reader of spaces.
type Endless struct{}

func (Endless) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{' '}, len(b)))
	return len(b), nil
}

// Full is a writer that accepts no bytes.
type Full struct{}

func (Full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
