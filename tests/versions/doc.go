// Package versions compares this version with the last one: it reads the files that the other wrote, continues
// its training, and its processes refuse to join a job of the other.
package versions
