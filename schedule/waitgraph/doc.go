// Package waitgraph finds and describes the cycle in which ranks wait for each other's actions, in a plan
// that cannot end and in a running step.
package waitgraph
