package corpus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

// Text is the training text. All of it is in memory.
type Text struct {
	Bytes []byte
	Ends  []int  // the index in Bytes at which each file ends
	Name  string // for messages
	Cut   bool   // there was more text than the limit
}

// SHA256 identifies the text, so that a checkpoint is not resumed on another text.
func (t *Text) SHA256() string {
	sum := sha256.Sum256(t.Bytes)
	return hex.EncodeToString(sum[:])
}

// Entropy returns the entropy of the byte frequencies, in nats per byte.
func (t *Text) Entropy() float64 {
	var counts [256]int
	for _, b := range t.Bytes {
		counts[b]++
	}
	var nats float64
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(t.Bytes))
			nats -= p * math.Log(p)
		}
	}
	return nats
}

// Wanted decides by the name and the beginning of a file whether to read it. nil accepts every
// file in a folder that looks like text, and any file that is named directly.
type Wanted func(path string, head []byte) bool

// Read reads a file, or every accepted file under a folder, in lexical order, up to most bytes
// in all. In a folder, it skips names that begin with a dot, and does not follow links. It
// returns ctx's error if ctx ends while it reads a folder or waits for a pipe.
func Read(ctx context.Context, path string, most int, want Wanted) (*Text, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w: name a file or a folder that exists", atomicfile.Plain(err))
	}
	t := &Text{Name: path}
	if info.IsDir() {
		if want == nil {
			want = LooksLikeText
		}
		err = t.readFolder(ctx, path, most, want)
	} else if info.Mode().IsRegular() {
		err = t.readFile(path, most, want)
	} else {
		t, err = readWaiting(ctx, path, most, want)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case len(t.Bytes) == 0 && info.IsDir():
		return nil, fmt.Errorf("corpus: %s has no text files: name a folder with text in it", path)
	case len(t.Bytes) == 0:
		return nil, fmt.Errorf("corpus: %s is empty: name a file with text in it", path)
	}
	return t, nil
}

// readWaiting reads a path that is not a regular file, such as a pipe, and may wait for a
// writer until ctx ends. The system cannot cancel such a wait: if ctx ends first, a goroutine
// remains until the pipe has a writer.
func readWaiting(ctx context.Context, path string, most int, want Wanted) (*Text, error) {
	t, done := &Text{Name: path}, make(chan error, 1)
	go func() { done <- t.readFile(path, most, want) }()
	select {
	case err := <-done:
		return t, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readFolder adds the accepted files under a folder until the text is cut. It skips names that begin with a dot.
func (t *Text) readFolder(ctx context.Context, root string, most int, want Wanted) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if path != root && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		if t.Cut {
			return fs.SkipAll
		}
		return t.readFile(path, most, want)
	})
}

// readFile adds a file, or as much of it as fits. A file whose head is rejected adds nothing; a
// nil want accepts every file.
func (t *Text) readFile(path string, most int, want Wanted) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("corpus: %w", atomicfile.Plain(err))
	}
	defer file.Close() // the file was only read
	head := make([]byte, 8<<10)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("corpus: %w", atomicfile.Plain(err))
	}
	head = head[:n]
	if n == 0 || want != nil && !want(path, head) {
		return nil
	}
	var content bytes.Buffer
	content.Write(head)
	room := most - len(t.Bytes)
	// Reading one byte beyond the limit shows whether there is more.
	if _, err := io.Copy(&content, io.LimitReader(file, int64(max(room-n, 0)+1))); err != nil {
		return fmt.Errorf("corpus: %w", atomicfile.Plain(err))
	}
	t.Cut = content.Len() > room
	t.Bytes = append(t.Bytes, content.Bytes()[:min(content.Len(), room)]...)
	t.Ends = append(t.Ends, len(t.Bytes))
	return nil
}

// LooksLikeText reports whether the head of a file looks like text: it has no NUL, and at most 2 % of its bytes
// are control characters other than white space.
func LooksLikeText(_ string, head []byte) bool {
	control := 0
	for _, b := range head {
		switch {
		case b == 0:
			return false
		case b < ' ' && b != '\t' && b != '\n' && b != '\r' && b != '\f':
			control++
		}
	}
	return control*50 <= len(head)
}
