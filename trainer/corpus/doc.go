// Package corpus reads text to train on as bytes, and says which bytes of it each microbatch
// is made of.
//
// [Read] takes a file or a folder. [Drawn] draws the windows of training steps by seed, step
// and number alone, so that neither the plan nor an interruption changes what is learnt;
// [Tiled] covers held-out text evenly.
package corpus
