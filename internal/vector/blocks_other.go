//go:build !amd64 || purego

package vector

func (Set) mulAdd([]float32, int, Matrix, Matrix, int, int, int, Form, bool) bool { return false }

func (Set) transposeBlocks([]float32, int, []float32, int, int, int) (rows, cols int) { return 0, 0 }

func (Set) dropoutGroups([]float32, []float32, Philox, uint64, uint32, float32) int { return 0 }

func (Set) drawGroups([]uint32, Philox, uint64, uint64) int { return 0 }
