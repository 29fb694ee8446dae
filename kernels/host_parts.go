package kernels

import "github.com/weir-ml/weir/internal/arithmetic/vector"

// partElements is the number of elements in a part of an operation: enough to occupy a thread
// profitably.
const partElements = 1 << 14

// partsOf returns the number of parts into which an operation on the given number of elements is
// divided.
func partsOf(elements int) int {
	return max(1, min(elements/partElements, maxParts))
}

// columnParts returns the number of parts into which an operation is divided along columns. It is
// at most the number of threads, because each part reads short pieces of rows.
func (h *host) columnParts(elements, cols int) int {
	return min(partsOf(elements), (cols+63)/64, h.crew.threads())
}

// share divides n items into parts and returns the range of part i. The lengths of all ranges except
// the last are multiples of step.
func share(n, step, i, parts int) (begin, end int) {
	steps := (n + step - 1) / step
	return min(steps*i/parts*step, n), min(steps*(i+1)/parts*step, n)
}

// operations has a field for each operation that runs in parts. The operation is stored there
// while it runs, so that nothing is allocated.
type operations struct {
	elements      elementsTask
	addRow        addRowTask
	sumRows       sumRowsTask
	embed         embedTask
	embedGrad     embedGradTask
	attention     attentionTask
	attentionGrad attentionGradTask
	norm          normTask
	normGrad      normGradTask
	normGains     normGainsTask
	softmax       softmaxTask
	softmaxGrad   softmaxGradTask
	squares       squaresTask
	dropout       dropoutTask

	quantize        quantizeTask
	dequantize      dequantizeTask
	quantizedMatMul quantizedMatMulTask
}

// launch stores an operation at place and runs it in parts.
func launch[T any, P interface {
	*T
	task
}](h *host, place P, operation T, parts int) {
	*place = operation
	h.run(place, parts)
	var nothing T
	*place = nothing // views must not outlive the call
}

// elementsTask is an elementwise operation.
type elementsTask struct {
	// run computes the elements from begin to end. It is not a closure: its data are in the
	// fields below.
	run  func(t *elementsTask, w *worker, begin, end int)
	dst  []float32
	x, y []float32
	m, v []float32
	adam vector.AdamW
}

// elements runs an operation over the elements of its dst.
func (h *host) elements(t elementsTask) {
	launch(h, &h.operations.elements, t, partsOf(len(t.dst)))
}

func (t *elementsTask) part(i, parts int, w *worker) {
	begin, end := share(len(t.dst), 16, i, parts)
	t.run(t, w, begin, end)
}
