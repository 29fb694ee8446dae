// Package instances provides problems for tests of placement: random ones, rectangles cut into buffers,
// and the allocations of training steps.
package instances
