// Package virtual runs whole pipelines in virtual time (testing/synctest): stages sleep for the
// duration of their work, so a step takes exactly as long as the plan implies. The tests compare the
// runner's measurements with those of simulate.Run, and its numbers with those of a loop without a
// pipeline.
package virtual
