//go:build purego

package cpufeature_test

const pure, no512 = true, false
