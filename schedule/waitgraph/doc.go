// Package waitgraph finds and describes the ranks for which all others wait: the cycle in which ranks
// wait for each other's actions, in a plan that cannot end and in a running step, and the ranks that
// hold up a whole job.
package waitgraph
