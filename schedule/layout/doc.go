// Package layout is for planning the memory of a step before it runs.
//
// It takes a plan, and for every stage a [Template]: what the stage allocates, keeps
// and releases for one microbatch. It plays every rank's program with them, as the
// runner would run it, and so knows the birth and the death of every buffer. Package
// placement gives them offsets. The outcome for a rank is a [memory.Layout], which its
// arena obeys, and a certificate.
//
// Planning does not grow with microbatches: what repeats in a program is laid out
// once. Exceptions are steps that are told the shape of every microbatch, schedules that
// keep more the more microbatches there are (gpipe, breadth-first), and programs of up to
// half a million births for which every cycle wastes much. What is too large for a search
// lies in size classes, in linear time. Everything here is a pure function; package runner records templates and runs
// layouts.
package layout
