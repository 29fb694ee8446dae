package kernels

import "github.com/weir-ml/weir/internal/vector"

// partElements are the elements of a part of an operation: enough to be worth a
// thread.
const partElements = 1 << 14

// partsOf returns how many parts so many elements make.
func partsOf(elements int) int {
	return max(1, min(elements/partElements, maxParts))
}

// columnParts returns the parts of an operation that goes down the columns of so many
// elements: no more than there are threads, because a part reads short pieces of rows.
func (h *host) columnParts(elements, cols int) int {
	return min(partsOf(elements), (cols+63)/64, h.crew.threads())
}

// share returns what part i of several has of n things: whole multiples of step,
// but for the last one.
func share(n, step, i, parts int) (begin, end int) {
	steps := (n + step - 1) / step
	return min(steps*i/parts*step, n), min(steps*(i+1)/parts*step, n)
}

// operations has a place for each operation that runs in parts. It lies there while
// it runs, so that nothing is allocated.
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

// launch runs an operation in parts, at its place.
func launch[T any, P interface {
	*T
	task
}](h *host, place P, operation T, parts int) {
	*place = operation
	h.run(place, parts)
	var nothing T
	*place = nothing // no view outlives the call
}

// elementsTask is an operation that treats every element alone.
type elementsTask struct {
	// run computes the elements from begin to end. It is a function without a
	// closure: what it works on is below.
	run  func(t *elementsTask, w *worker, begin, end int)
	dst  []float32
	x, y []float32
	m, v []float32
	adam vector.AdamW
}

// elements runs an operation on the elements of its dst.
func (h *host) elements(t elementsTask) {
	launch(h, &h.operations.elements, t, partsOf(len(t.dst)))
}

func (t *elementsTask) part(i, parts int, w *worker) {
	begin, end := share(len(t.dst), 16, i, parts)
	t.run(t, w, begin, end)
}
