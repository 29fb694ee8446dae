// Package tracetest writes traces of simulated steps in the formats of torch.profiler, Megatron-LM
// and Weir.
package tracetest
