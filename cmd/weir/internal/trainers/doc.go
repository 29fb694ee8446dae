// Package trainers knows what trainers on PyTorch load, and where they place stages.
package trainers
