// Package instances is for tests of placement: it makes problems at random, from rectangles
// that are cut into buffers, and from what training allocates.
package instances
