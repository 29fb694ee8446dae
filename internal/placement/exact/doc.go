// Package exact searches placement problems exhaustively: it decides whether a layout within a
// capacity exists, or finds the minimal height with a proof, if the search is feasible.
//
// It is for tightly packed problems of a few hundred buffers, such as those of compilers for
// accelerators. The memory of a training step needs no such search: package placement comes
// within a percent of the bound in a fraction of the time. So only weir place imports this
// package.
//
// [Solve] starts from the layout of package placement, and searches below its height. The
// search branches on one buffer at a time: either it rests on the placed buffers or it does not. It
// propagates the consequences for the others before it chooses the next one.
package exact
