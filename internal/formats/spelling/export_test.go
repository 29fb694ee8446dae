package spelling

// Distance is for its test.
var Distance = distance
