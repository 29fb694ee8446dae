//go:build amd64 && !purego && noavx512

package cpufeature

const allowAVX512 = false
