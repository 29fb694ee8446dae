// Package virtual runs whole pipelines in virtual time (testing/synctest): stages sleep for the
// duration of their work, so that a step takes exactly as long as the plan implies. The
// runner's measurements are compared with those of simulate.Run, and its numbers with a loop
// without a pipeline.
package virtual
