// Package lower is for turning a plan of computations into one that can run: it adds when
// weights are gathered and gradients reduced, when copies of weights are made, what is sent
// and received, and what is released after each action. [Prepare] does all of it and proves
// the outcome; the passes are there one by one as well.
package lower
