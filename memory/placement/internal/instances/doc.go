// Package instances makes placement problems for tests: random ones, rectangles cut into
// buffers, and what training allocates.
package instances
