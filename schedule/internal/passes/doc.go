// Package passes is what check, lower and simulate go over plans with: what follows
// from a plan's placement and mode, the links between ranks, and engines that skip
// repeats which cannot differ. A walk goes through one rank's program (walk.go has the
// argument), a march takes all ranks together, in any order (march.go), a clock takes
// them round by round (clock.go).
package passes
