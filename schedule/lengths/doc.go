// Package lengths describes microbatches of unequal lengths, and the times and bytes that depend on
// these lengths.
//
// A microbatch holds one or more sequences. Its costs depend only on its [Size]: the number of its tokens, and the sum
// of the squares of its sequences' lengths. Matrix products take time in proportion to the tokens, causal attention in
// proportion to the squares. An [Amount] is a time or a number of bytes of this form, and [Fit] finds one from
// measurements.
//
// All types are values, and every function is pure. An amount never decreases when a microbatch grows,
// because its coefficients are not negative.
package lengths
