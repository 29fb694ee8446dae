// Package waitgraph finds and describes the cycle in which ranks wait for each other's actions: in a
// plan that cannot end, and among the ranks of a running step.
package waitgraph
