// Package memory compares planned memory with the memory that a step uses: profiles with the runner's
// allocations, and layouts with the bytes that a step touches.
package memory
