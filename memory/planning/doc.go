// Package planning defines what a runner needs of a memory planner: a [Planner] gets the plan of a step and
// returns a memory layout for every rank. Package schedule/layout implements it. With the interface, a runner
// does not depend on a planner.
package planning
