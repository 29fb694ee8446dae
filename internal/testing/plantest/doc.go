// Package plantest provides valid and invalid plans for tests, and simple, slow reference
// implementations of checks and passes.
package plantest
