package schedule

// Distance is what tests of their own look at.
var Distance = distance
