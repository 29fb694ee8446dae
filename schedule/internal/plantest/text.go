package plantest

import "bytes"

import "io"

// Endless is spaces without end.
type Endless struct{}

func (Endless) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{' '}, len(b)))
	return len(b), nil
}

// Full takes nothing.
type Full struct{}

func (Full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
