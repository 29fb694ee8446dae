// Package tracetest is for writing traces of runs that never happened: a simulated step, as
// torch.profiler or Megatron-LM would have recorded it.
package tracetest
