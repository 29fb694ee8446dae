// Package mutation changes one thing in the core at a time, such as a condition, a bound or an
// assignment, and expects a failing test for each. A change that no test detects is not tested, or
// has no effect. A package is built once with all its mutants, each under the control of a number,
// and a mutant runs only against the tests that reach it.
package mutation
