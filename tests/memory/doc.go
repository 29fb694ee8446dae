// Package memory holds memory as it was planned against memory as a step uses it:
// profile against what the runner does, layouts against the bytes that were touched.
package memory
