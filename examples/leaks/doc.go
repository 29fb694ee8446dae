// Leaks reproduces three leaks that were found in practice, by running a small transformer with
// one guard removed at a time: a loss that keeps the tensor from which it was computed (Fast-LLM
// issue 486), a context that keeps the tensors that attention saved (TransformerEngine issue
// 1935), and operations of a fused group that keep the tensors restored for them
// (TransformerEngine pull request 2750).
//
// Each guard is run twice: once with Weir's default, which ends the step with an error that
// names the owner of the leak, and once with leaks tolerated, to show how large the leak
// becomes. All printed figures are measured in the run.
//
// With -refit it reproduces a fourth case (NeMo-RL issue 2003): between two steps of training in
// FP8 all memory is lent to another program. A framework keeps more buffers than those of its model,
// and they pin the segments of its allocator; clearing its caches by hand frees most of the
// allocated memory but little of the reserved memory. Weir's steps and the memory that it
// returns are real. The caching allocator is simulated: it gets the allocations of a step of
// Weir, in the same order, with the lifetimes of TransformerEngine, and its calls to the device
// are executed on the host and added to the time of the same step. Times are medians.
//
//	go run ./examples/leaks
//	go run ./examples/leaks -refit
//	go run ./examples/leaks -microbatches 1024 -log /tmp/leaks
//	go run ./cmd/weir mem log /tmp/leaks/attention.jsonl --html /tmp/leaks/attention.html
package main
