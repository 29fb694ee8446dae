package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// ErrSum is returned if the data that a rank received has a different checksum from the data that was sent.
var ErrSum = errors.New("transport: the checksum differs")

const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC-32C of b.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// SumOf returns the CRC-32C of a tensor's bytes, as the codec encodes them. Like Codec.Encode, it may be called
// on any goroutine.
func SumOf[T any](codec Codec[T], h T) (uint32, error) {
	w := summings.Get().(*summing)
	defer w.release()
	err := codec.Encode(w, h)
	return w.sum, err
}

// Summed returns a codec that appends a checksum to the bytes of each tensor. Encode computes the checksum from the
// sender's buffer, and Decode compares it with the checksum of the receiver's new buffer, so a change anywhere
// between the two buffers is detected. If the checksums differ, Decode returns the handle and an error that wraps
// ErrSum.
func Summed[T any](codec Codec[T]) Codec[T] { return &summed[T]{Codec: codec} }

type summed[T any] struct {
	Codec[T]
	sent [sumBytes]byte // the checksum that Decode has read
}

func (s *summed[T]) Size(h T) int64 { return s.Codec.Size(h) + sumBytes }

func (s *summed[T]) Encode(w io.Writer, h T) error {
	sum := summings.Get().(*summing)
	defer sum.release()
	sum.next = w
	if err := s.Codec.Encode(sum, h); err != nil {
		return err
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(sum.buffer[:0], sum.sum))
	return err
}

func (s *summed[T]) Decode(r io.Reader, size int64) (T, error) {
	if size < sumBytes {
		var none T
		return none, fmt.Errorf("%w: the message of %d bytes has none: both ranks must send them", ErrSum, size)
	}
	h, err := s.Codec.Decode(r, size-sumBytes)
	if err != nil {
		return h, err
	}
	if _, err := io.ReadFull(r, s.sent[:]); err != nil {
		return h, err
	}
	sum, err := SumOf(s.Codec, h)
	if err != nil {
		return h, err
	}
	return h, Compare(sum, binary.LittleEndian.Uint32(s.sent[:]))
}

// Compare returns an error that wraps ErrSum if the checksum of the received data differs from the checksum of
// the sent data.
func Compare(received, sent uint32) error {
	if received == sent {
		return nil
	}
	return fmt.Errorf("%w: %08x where it was sent, %08x where it was received: a bit changed on the way, in the memory, the network or the driver of either rank", ErrSum, sent, received)
}

// summing is a writer that computes the checksum of the bytes that it passes on to next, which may be nil.
type summing struct {
	next   io.Writer
	sum    uint32
	buffer [sumBytes]byte
}

var summings = sync.Pool{New: func() any { return new(summing) }}

func (s *summing) release() {
	*s = summing{}
	summings.Put(s)
}

func (s *summing) Write(b []byte) (int, error) {
	s.sum = crc32.Update(s.sum, castagnoli, b)
	if s.next == nil {
		return len(b), nil
	}
	return s.next.Write(b)
}
