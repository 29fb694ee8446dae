package main

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
)

// Most bytes of text that are read: all of it is held in memory.
const (
	mostText   = 64 << 20
	mostSource = 4 << 20 // of the standard library, where it stands in for a text
)

// text is what a run learns from.
type text struct {
	bytes []byte
	name  string // for people
	files int
	cut   bool // there was more than the most that is read
}

// sum identifies the text, so that a checkpoint is not resumed on another.
func (t *text) sum() string {
	sum := sha256.Sum256(t.bytes)
	return hex.EncodeToString(sum[:])
}

// entropy returns the nats per byte that the frequencies of bytes alone give.
func (t *text) entropy() float64 {
	var counts [256]int
	for _, b := range t.bytes {
		counts[b]++
	}
	var nats float64
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(t.bytes))
			nats -= p * math.Log(p)
		}
	}
	return nats
}

// readText reads a file or a folder, or where path is empty the default text.
func readText(ctx context.Context, path string) (*text, error) {
	if path == "" {
		return defaultText(ctx)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("-data: %w: name a file or a folder that exists", plain(err))
	}
	t := &text{name: path}
	if info.IsDir() {
		err = t.readFolder(ctx, path, mostText, isText)
	} else {
		err = t.readFile(path, mostText, nil)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case len(t.bytes) == 0 && info.IsDir():
		return nil, fmt.Errorf("-data: %s has no text files: name a folder with text in it", path)
	case len(t.bytes) == 0:
		return nil, fmt.Errorf("-data: %s is empty: name a file with text in it", path)
	}
	return t, nil
}

// readFolder adds every file under a folder whose content is wanted, in lexical
// order. Names that begin with a dot are left out, and links are not followed.
func (t *text) readFolder(ctx context.Context, root string, most int, want func(path string, head []byte) bool) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
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
		if t.cut {
			return fs.SkipAll
		}
		return t.readFile(path, most, want)
	})
	if errors.Is(err, context.Canceled) {
		return errBefore
	}
	return err
}

// readFile adds a file, or the beginning of it where there is no more room. A
// file whose head is not wanted adds nothing; nil wants every file.
func (t *text) readFile(path string, most int, want func(path string, head []byte) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("-data: %w", plain(err))
	}
	defer file.Close() // It was only read.
	head := make([]byte, 8<<10)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("-data: %w", plain(err))
	}
	head = head[:n]
	if n == 0 || want != nil && !want(path, head) {
		return nil
	}
	var content bytes.Buffer
	content.Write(head)
	room := most - len(t.bytes)
	// One byte more than there is room for shows that there is more.
	if _, err := io.Copy(&content, io.LimitReader(file, int64(max(room-n, 0)+1))); err != nil {
		return fmt.Errorf("-data: %w", plain(err))
	}
	t.files++
	t.cut = content.Len() > room
	t.bytes = append(t.bytes, content.Bytes()[:min(content.Len(), room)]...)
	return nil
}

// isText reports whether the head of a file looks like text: no NUL, and few
// control characters.
func isText(_ string, head []byte) bool {
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

// plain takes the name of the system call out of an error about a path.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
