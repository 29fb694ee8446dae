// Package plantest makes plans for tests, valid ones and others, and judges plans in
// the slow and plain way that their checks and passes are compared with.
package plantest
