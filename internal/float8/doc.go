// Package float8 is the arithmetic of formats of eight bits and fewer: exact decoding,
// and encoding with one rounding.
//
// [Format] describes a format by its fields; [E4M3], [E5M2] and [E2M1] are the element
// formats and [E8M0] is that of scales. Encoding takes a float32, which every narrower
// source (bfloat16, float16) is exactly; a float64 goes through [Odd], so that no value
// is ever rounded twice. The nearest code wins, and of two nearest the even one;
// [Format.Stochastic] takes the upper one with the probability of the distance from the
// lower one. What is above the greatest finite value is the caller's choice ([Overflow]).
//
// All functions are pure. Tables are built once and never change.
package float8
