// Package oracle computes the live memory of a rank at every action of a step, in bytes and by
// class, from the actions with their drop bits and from the declarations of the stages. It uses
// neither the planner nor the runner: its rules are those of docs/dev/invariants.md, implemented
// independently, so that the books of both can be compared with a third one (L6).
package oracle
