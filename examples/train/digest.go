package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/weir-ml/weir/kernels"
)

// digest returns the SHA-256 of all weights, as little-endian float32, in the
// order of their names.
func (t *trainer) digest() (string, error) {
	hash := sha256.New()
	for _, p := range t.parameters() {
		values, err := read(p.Device, p.Weight)
		if err != nil {
			return "", err
		}
		hash.Write(littleEndian(values))
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// read copies a buffer from its device.
func read(dev kernels.Device, b kernels.Buffer) ([]float32, error) {
	values := make([]float32, b.N)
	return values, dev.ReadFloat32(values, b)
}

func littleEndian(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
