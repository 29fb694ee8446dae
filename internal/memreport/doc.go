// Package memreport presents a memory log as numbers, as a few lines of text, or as a page.
//
// A [Log] takes records one by one and uses a fixed amount of memory for each rank, however long
// the log is. It keeps columns of consecutive records with the minimum and the maximum of each,
// so that no extreme is lost, the growth within a step by position, and the level after each
// step.
//
// Growth is found in two ways. If a log has the excess (the allocator's book minus the step's),
// growth is a fact: the first record with an excess is the first microbatch that grew. If it has
// only the level, growth is a slope: the median of the slopes between all pairs of points (Theil
// 1950, Sen 1968), which is robust against outliers, with Sen's confidence interval. A level
// grows if the whole interval is above zero and the end of the log is compatible with the same
// rate: a level that saturates is a warm-up.
package memreport
