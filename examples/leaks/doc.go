// Leaks tells the story of three leaks that were found in the field, by running a
// small transformer with one guard removed at a time: the loss that keeps what it was
// computed from (Fast-LLM issue 486), the tensors that attention saved and its context
// kept (TransformerEngine issue 1935), and the operations of a fused group that keep
// what was restored for them (TransformerEngine pull request 2750).
//
// Each guard is run twice: once with Weir as it is, which ends the step with an error
// that says who kept what, and once told to tolerate leaks, to show what the leak comes
// to. Everything printed was measured in the run.
//
// With -refit it tells a fourth one (NeMo-RL issue 2003): between two steps of training in
// FP8 all memory is lent to somebody else. A framework keeps more than its model, which pins the
// segments of its allocator; clearing by hand what can be cleared frees most of what is
// allocated and little of what is reserved. The steps are real, and so is what Weir hands
// back. The caching allocator is simulated: it gets what a step of Weir allocates, in that
// order, kept as TransformerEngine keeps it, and what it asks of its device is done on the
// host and added to the same step's time. Times are medians.
//
//	go run ./examples/leaks
//	go run ./examples/leaks -refit
//	go run ./examples/leaks -microbatches 1024 -log /tmp/leaks
//	go run ./cmd/weir mem log /tmp/leaks/attention.jsonl --html /tmp/leaks/attention.html
package main
