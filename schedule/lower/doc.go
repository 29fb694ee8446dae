// Package lower adds to a plan of computations what it needs to run: when weights are
// gathered and gradients reduced, when copies of weights are made, what is sent and
// received, and what dies with each action. [Prepare] does all of it and proves the outcome;
// the passes are there one by one as well.
package lower
