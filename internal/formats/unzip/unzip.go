package unzip

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// ErrBomb is returned for a file that unpacks to far more than its own size.
var ErrBomb = errors.New("it unpacks to far more than its size")

// Dumps and traces compress to between a tenth and a fiftieth of their size. A file that unpacks to more than
// this limit is neither a dump nor a trace.
const (
	unpackedAtOnce = 16 << 20
	unpackedByByte = 200
)

// Buffer is the size of a bufio.Reader from which Open reads without another buffer.
const Buffer = 1 << 16

// Open returns the content of a file. It unpacks a gzip file as long as the content is in proportion
// to the size of the file. A read beyond that returns ErrBomb.
func Open(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, Buffer)
	if head, _ := in.Peek(2); string(head) != "\x1f\x8b" {
		return in, nil
	}
	packed := &counted{r: in}
	z, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return bufio.NewReaderSize(&guarded{z, packed, 0}, 1<<16), nil
}

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

type guarded struct {
	z        io.Reader
	in       *counted
	unpacked int64
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	if g.unpacked += int64(n); g.unpacked > unpackedAtOnce+unpackedByByte*g.in.n {
		return n, ErrBomb
	}
	return n, err
}

// Expand returns the files that names stand for, sorted and each once: files, folders with their subfolders,
// and patterns of filepath.Glob. skipped are the files in folders that fitting rejects.
func Expand(names []string, fitting func(name string) bool) (files, skipped []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			matches, bad := filepath.Glob(name)
			if bad != nil || len(matches) == 0 {
				return nil, nil, err
			}
			files = append(files, matches...)
			continue
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		err = filepath.WalkDir(name+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case len(files)+len(skipped) > maxFiles:
				return fmt.Errorf("%s has more than %d files: give a folder that has no others", name, maxFiles)
			case entry.IsDir():
			case fitting(path):
				files = append(files, path)
			default:
				skipped = append(skipped, path)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(files)
	return slices.Compact(files), skipped, nil
}

// maxFiles bounds the number of files in folders.
const maxFiles = 1 << 18
