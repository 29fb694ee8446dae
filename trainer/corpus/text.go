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

	"github.com/weir-ml/weir/trainer/outfile"
)

// Text is what a run learns from. All of it is held in memory.
type Text struct {
	Bytes []byte
	Name  string // for people
	Files int
	Cut   bool // there was more than the most that was read
}

// SHA256 identifies the text, so that a checkpoint is not resumed on another.
func (t *Text) SHA256() string {
	sum := sha256.Sum256(t.Bytes)
	return hex.EncodeToString(sum[:])
}

// Entropy returns the nats per byte that the frequencies of bytes alone give.
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

// Wanted says by the name and the beginning of a file whether it is read. Nil wants every
// file of a folder that looks like text, and a file that was named whatever it is.
type Wanted func(path string, head []byte) bool

// Read reads a file, or every file under a folder that is wanted, in lexical order: at most
// so many bytes in all. In a folder names that begin with a dot are left out, and links are
// not followed. The error is that of ctx where it ends before all is read.
func Read(ctx context.Context, path string, most int, want Wanted) (*Text, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w: name a file or a folder that exists", outfile.Plain(err))
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

// readWaiting reads what is no file, such as a pipe, for whose writer it may wait as long as
// ctx lets it. The system does not end such a wait: where ctx ends first, a goroutine stays
// until the pipe has a writer.
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

// readFolder adds every file under a folder that is wanted.
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

// readFile adds a file, or the beginning of it where there is no more room. A
// file whose head is not wanted adds nothing; nil wants every file.
func (t *Text) readFile(path string, most int, want Wanted) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("corpus: %w", outfile.Plain(err))
	}
	defer file.Close() // It was only read.
	head := make([]byte, 8<<10)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("corpus: %w", outfile.Plain(err))
	}
	head = head[:n]
	if n == 0 || want != nil && !want(path, head) {
		return nil
	}
	var content bytes.Buffer
	content.Write(head)
	room := most - len(t.Bytes)
	// One byte more than there is room for shows that there is more.
	if _, err := io.Copy(&content, io.LimitReader(file, int64(max(room-n, 0)+1))); err != nil {
		return fmt.Errorf("corpus: %w", outfile.Plain(err))
	}
	t.Files++
	t.Cut = content.Len() > room
	t.Bytes = append(t.Bytes, content.Bytes()[:min(content.Len(), room)]...)
	return nil
}

// LooksLikeText reports whether the head of a file looks like text: no NUL, and few
// control characters.
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
