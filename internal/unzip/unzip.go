package unzip

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// ErrBomb is returned by a reader of a file that unpacks to far more than its own size.
var ErrBomb = errors.New("it unpacks to far more than its size")

// Dumps and traces compress to a tenth or a fiftieth. A file that unpacks to more than these
// is neither.
const (
	unpackedAtOnce = 16 << 20
	unpackedByByte = 200
)

// New returns the content of a gzip file, as long as it is in proportion to the size of the file.
func New(r io.Reader) (io.Reader, error) {
	in := &counted{r: r}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return &guarded{z, in, 0}, nil
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

// Expand returns the files with the given names, in the given folders, and of the given patterns of
// filepath.Glob, in order. It skips files of a folder that fitting rejects.
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
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, nil, err
		}
		for _, entry := range entries {
			path := filepath.Join(name, entry.Name())
			switch {
			case entry.IsDir():
			case fitting(path):
				files = append(files, path)
			default:
				skipped = append(skipped, path)
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files), skipped, nil
}
