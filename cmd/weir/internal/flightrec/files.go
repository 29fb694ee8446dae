package flightrec

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-ml/weir/internal/formats/unzip"
)

// Set is the result of [Read].
type Set struct {
	Dumps   []*Dump // in order of rank; no two share a rank
	Broken  []Broken
	Skipped []string // files in folders and archives whose names do not end in a rank
}

// Broken is a file that was read as a dump but is not a complete one.
type Broken struct {
	File string
	Rank int // -1 if the file is not named like the dumps, or if its name contains no rank
	Err  error
}

// Read reads dumps: files, folders of them with their subfolders, patterns of filepath.Glob, and archives
// (.tar, .tar.gz). The rank of a dump is the number at the end of its name. Read returns an error if a
// name does not exist, or if two dumps are from the same rank.
func Read(names ...string) (*Set, error) {
	files, skipped, err := unzip.Expand(names, func(name string) bool { return rankOf(name) >= 0 })
	if err != nil {
		return nil, err
	}
	got, faults := make([]Set, len(files)), make([]error, len(files))
	var all sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range files {
		free <- struct{}{}
		all.Go(func() {
			faults[i] = got[i].readFile(name)
			<-free
		})
	}
	all.Wait()
	s := &Set{Skipped: skipped}
	for _, one := range got {
		s.Dumps, s.Broken, s.Skipped = append(s.Dumps, one.Dumps...), append(s.Broken, one.Broken...), append(s.Skipped, one.Skipped...)
	}
	if len(s.Dumps) > 0 { // core.17 beside dump_0 is no dump of rank 17
		stems := map[string]bool{}
		for _, d := range s.Dumps {
			stem, _ := split(d.File)
			stems[stem] = true
		}
		for i, b := range s.Broken {
			if stem, _ := split(b.File); !stems[stem] {
				s.Broken[i].Rank = -1
			}
		}
	}
	slices.SortStableFunc(s.Dumps, func(a, b *Dump) int { return a.Rank - b.Rank })
	for i := 1; i < len(s.Dumps); i++ {
		if a, b := s.Dumps[i-1], s.Dumps[i]; a.Rank == b.Rank {
			faults = append(faults, fmt.Errorf("rank %d has two dumps, %s and %s: give those of one hang", a.Rank, a.File, b.File))
		}
	}
	return s, cmp.Or(faults...)
}

func (s *Set) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() // It was only read.
	err = s.Add(name, file)
	if _, unreadable := errors.AsType[*fs.PathError](err); err == nil || unreadable {
		return err
	}
	s.Broken = append(s.Broken, Broken{name, rankOf(name), err})
	return nil
}

// Add reads a dump or an archive of dumps, either of which may be compressed.
func (s *Set) Add(name string, r io.Reader) error {
	in, err := unzip.Open(r)
	if err != nil {
		return fault("%v", err)
	}
	head, err := in.Peek(262)
	switch {
	case len(head) == 0 && err == io.EOF:
		return fault("the file is empty")
	case len(head) == 0:
		return err
	case len(head) == 262 && string(head[257:]) == "ustar":
		err = s.archive(name, in)
	default:
		err = s.dump(name, in, bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")))
	}
	if errors.Is(err, unzip.ErrBomb) && !errors.Is(err, ErrDump) {
		return fmt.Errorf("%w: %w", ErrDump, err)
	}
	return err
}

// archive reads the dumps of a tar archive. It lists files without a rank in their name as Skipped, and files that it
// cannot read as Broken.
func (s *Set) archive(name string, r io.Reader) error {
	t := tar.NewReader(r)
	for member := bufio.NewReaderSize(t, unzip.Buffer); ; member.Reset(t) {
		header, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: the rest of the archive cannot be read: %w", ErrDump, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		path := name + ":" + header.Name
		if rankOf(header.Name) < 0 {
			s.Skipped = append(s.Skipped, path)
			continue
		}
		if err := s.Add(path, member); err != nil {
			if errors.Is(err, unzip.ErrBomb) {
				return err
			}
			s.Broken = append(s.Broken, Broken{path, rankOf(header.Name), err})
		}
	}
}

// rankOf returns the number that a file's name ends in, before its extensions, or -1 if there is
// none.
func rankOf(name string) int {
	_, rank := split(name)
	return rank
}

// split returns the name of a file without its folder, its extensions and the rank that it ends in, and the rank, or
// -1 if it does not end in one.
func split(name string) (stem string, rank int) {
	base := name[strings.LastIndexAny(name, `/\:`)+1:] // a member of an archive follows a colon
	for _, ending := range []string{".gz", ".json", ".pickle", ".pkl", ".pt", ".bin"} {
		base = strings.TrimSuffix(base, ending)
	}
	stem = strings.TrimRight(base, "0123456789")
	rank, err := strconv.Atoi(base[len(stem):])
	if err != nil || rank > maxRank {
		return base, -1
	}
	return stem, rank
}
