// Package memory compares planned memory with the memory that a step uses: profiles with the
// runner's allocations, layouts with the bytes that were touched.
package memory
