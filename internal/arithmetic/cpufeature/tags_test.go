//go:build !purego && !noavx512

package cpufeature_test

const pure, no512 = false, false
