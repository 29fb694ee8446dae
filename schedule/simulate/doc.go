// Package simulate predicts the step of a plan from the costs of its actions: its makespan and
// span, the waits of each rank, and the live bytes.
package simulate
