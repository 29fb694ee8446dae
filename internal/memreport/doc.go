// Package memreport is for showing a memory log: as numbers, as a few lines of text, as a
// page, as counters for Perfetto, as CSV, and as the first difference between two logs.
//
// A [Log] takes records one by one and keeps a fixed amount for each rank, however
// long the log is: columns that stand for runs of records, with the smallest and the
// largest of each (nothing high or low is lost by drawing fewer points than there
// were), what a step adds as it goes on, and what stays from step to step.
//
// Growth is found in two ways. In a log that has the excess (the allocator's
// book minus the step's), growth is a fact: the first record that has it is the first
// microbatch. Where it tells the level alone, growth is a slope: the median of the
// slopes between all pairs of points (Theil 1950, Sen 1968), which nothing rare can
// move, with Sen's interval for it; a level grows where the whole interval is above
// zero, and the end of it may have the same rate: what saturates is a warm-up.
package memreport
