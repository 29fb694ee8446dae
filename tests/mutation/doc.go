// Package mutation changes one thing in the core at a time, such as a condition, a bound or
// an assignment, and wants a red test for each. What stays green is a change that no test
// sees, or one that changes nothing. A package is built once with all its mutants, each
// behind a number, and a mutant meets only the tests that reach it.
package mutation
