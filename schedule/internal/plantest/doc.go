// Package plantest is for tests of plans: it makes valid ones and others, and judges them in
// the slow and plain way that checks and passes are compared with.
package plantest
