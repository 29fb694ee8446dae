// Package oracle says what a rank has live at every action of a step, in bytes and by class,
// from the actions with their drop bits and from what stages declare. It knows neither the
// planner nor the runner: its rules are those of docs/invariants.md, written down once more,
// so that the books of both can be held to a third one (L6).
package oracle
