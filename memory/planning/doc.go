// Package planning defines what a runner needs of a planner of memory: a [Planner] gets the plan of a
// step and returns the layout of the memory of every rank. Package schedule/layout implements it. With
// the interface, a runner does not depend on a planner.
package planning
