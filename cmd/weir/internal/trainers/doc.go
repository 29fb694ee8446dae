// Package trainers describes the trainers that are built on PyTorch: which plan files each of them loads, and on
// which rank it places each stage.
package trainers
