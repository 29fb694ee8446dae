// Package virtual runs whole pipelines in virtual time (testing/synctest): stages
// sleep for what they cost, so a step takes exactly as long as the plan makes it.
// What the runner measures is compared with a naive event simulation, with
// simulate.Run, and with the plan; what it computes with a loop that knows no
// pipeline.
package virtual
