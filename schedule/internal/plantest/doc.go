// Package plantest provides plans for tests, valid and invalid ones, and simple slow
// versions of checks and passes to compare the real ones with.
package plantest
