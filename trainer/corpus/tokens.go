package corpus

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/exp/mmap"

	"github.com/weir-ml/weir/trainer/atomicfile"
)

// ErrTokens is returned, by OpenTokens and by reads, for an invalid file of tokens.
var ErrTokens = errors.New("not a whole file of tokens")

// Tokens is a file of tokens, which may be larger than memory: it is mapped, and the system
// loads and drops its pages as needed. The tokens are uint16 or uint32, little-endian, with or
// without the header of llm.c: 256 int32, of which the first is 20240520 for uint16 or 20240801
// for uint32, the second is the version (1 or 7), and the third is the number of tokens.
//
// A Tokens is safe for concurrent use, except for Close.
type Tokens struct {
	file   *os.File // for checking its length
	mapped *mmap.ReaderAt
	start  int64 // offset of token 0 in the file
	width  int   // bytes per token
	first  int   // number of the slice's first token in the file
	count  int
}

const (
	headerBytes  = 256 * 4
	tokensPiece  = 4 << 10 // number of bytes read at a time
	hashedPieces = 64      // number of pieces that SHA256 reads
)

// headers are the headers of llm.c, by the size of a token in bytes.
var headers = map[int]struct{ magic, version uint32 }{2: {20240520, 1}, 4: {20240801, 7}}

// OpenTokens maps a file with tokens of 2 or 4 bytes. It detects a header by its first bytes. The caller must
// close the Tokens when none of its slices is in use.
func OpenTokens(path string, width int) (*Tokens, error) {
	header, known := headers[width]
	if !known {
		return nil, fmt.Errorf("corpus: %d bytes per token: give 2 (uint16) or 4 (uint32)", width)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", atomicfile.Plain(err))
	}
	t := &Tokens{file: file, width: width}
	if t.mapped, err = mmap.Open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("corpus: %w", atomicfile.Plain(err)), file.Close())
	}
	fail := func(format string, args ...any) (*Tokens, error) {
		return nil, errors.Join(fmt.Errorf("corpus: %s: %w: "+format, append([]any{path, ErrTokens}, args...)...), t.Close())
	}
	size := t.mapped.Len()
	t.count = size / width
	var head [3 * 4]byte
	if size >= headerBytes {
		if err := t.read(head[:], 0); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	magic, version, count := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
	for other, h := range headers {
		switch {
		case magic != h.magic:
		case other != width:
			return fail("its header says that a token has %d bytes, not %d: give the other width", other, width)
		case version != header.version:
			return fail("version %d in the header, expected %d: write it with a newer llm.c", version, header.version)
		default:
			t.start, t.count = headerBytes, (size-headerBytes)/width
			if uint64(t.count) != uint64(count) {
				return fail("its header says %d tokens and %d follow: copy it again", count, t.count)
			}
		}
	}
	if t.count == 0 || (size-int(t.start))%width != 0 {
		return fail("it has %d bytes, expected tokens of %d bytes: give the width that it was written with", size, width)
	}
	return t, nil
}

// Close unmaps the file. The slices of t become invalid.
func (t *Tokens) Close() error { return errors.Join(t.mapped.Close(), t.file.Close()) }

// Len returns the number of tokens.
func (t *Tokens) Len() int { return t.count }

// Slice returns the tokens from begin to end, which share the mapping of t.
func (t *Tokens) Slice(begin, end int) *Tokens {
	_ = make([]struct{}, t.count)[begin:end] // panics as slicing does
	part := *t
	part.first, part.count = t.first+begin, end-begin
	return &part
}

// ReadTokens sets dst to the tokens from number first on. It returns ErrTokens for a token
// beyond int32, and if the file has become shorter.
func (t *Tokens) ReadTokens(dst []int32, first int) error {
	if first < 0 || first > t.count || len(dst) > t.count-first {
		return fmt.Errorf("corpus: %s: tokens %d to %d of %d", t.file.Name(), first, first+len(dst), t.count)
	}
	var room [tokensPiece]byte
	for first += t.first; len(dst) > 0; {
		piece := room[:min(len(room), len(dst)*t.width)]
		if err := t.read(piece, t.start+int64(first*t.width)); err != nil {
			return err
		}
		n := len(piece) / t.width
		for i := range dst[:n] {
			if t.width == 2 {
				dst[i] = int32(binary.LittleEndian.Uint16(piece[2*i:]))
			} else if dst[i] = int32(binary.LittleEndian.Uint32(piece[4*i:])); dst[i] < 0 {
				return fmt.Errorf("corpus: %s: %w: token %d is %d: give the width that it was written with", t.file.Name(), ErrTokens, first+i, uint32(dst[i]))
			}
		}
		dst, first = dst[n:], first+n
	}
	return nil
}

// read copies bytes from the mapping. If the file has become shorter, an access to a page that no longer exists
// raises a signal, which becomes a panic of this goroutine. The rest of the last page reads as zeros, which
// read detects by the file's length.
func (t *Tokens) read(dst []byte, at int64) (err error) {
	cut := func() error {
		return fmt.Errorf("corpus: %s: %w: it ends before byte %d, but had %d bytes when it was opened: do not write to a file while it is read",
			t.file.Name(), ErrTokens, at+int64(len(dst)), t.mapped.Len())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // a runtime.Error for memory that could not be read
			err = cut()
		default:
			panic(fault)
		}
	}()
	if _, err := t.mapped.ReadAt(dst, at); err != nil {
		return fmt.Errorf("corpus: %s: %w", t.file.Name(), err)
	}
	size, err := t.file.Seek(0, io.SeekEnd) // unlike Stat, allocates nothing
	if err != nil {
		return fmt.Errorf("corpus: %w", atomicfile.Plain(err))
	}
	if size < at+int64(len(dst)) {
		return cut()
	}
	return nil
}

// SHA256 identifies the tokens by their number, their size, and 64 pieces spread evenly over
// them: reading a whole file would take at least as long as a step.
func (t *Tokens) SHA256() (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d tokens of %d bytes\n", t.count, t.width)
	last := max(t.count*t.width-tokensPiece, 0)
	piece := make([]byte, t.count*t.width-last)
	for i := range hashedPieces {
		if err := t.read(piece, t.start+int64(t.first*t.width)+int64(last)*int64(i)/(hashedPieces-1)); err != nil {
			return "", err
		}
		sum.Write(piece)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
