// Package exact is for placement problems that need a proof: it searches every layout, as far
// as that is in reach, and decides whether there is one within a capacity, or finds the least
// height.
//
// Problems of some hundreds of buffers that are packed tightly are what it is for, such as
// those of compilers for accelerators. The memory of a training step needs no such search:
// package placement brings it within a percent of the bound in a fraction of the time. So
// only weir place imports it.
//
// [Solve] takes the layout of package placement as the first one, and searches below it. The
// search goes on at one buffer at a time, which lies on what is placed or does not; what
// follows for the others is worked out before the next one is chosen.
package exact
