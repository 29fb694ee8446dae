// Package corpus provides text for training as bytes or as tokens: it reads the text, and
// selects the bytes or tokens of each microbatch.
//
// [Read] reads a file or a folder of text into memory; [OpenTokens] maps a file of tokens of any size. [Drawn]
// draws the windows of training steps. On a given text, a window depends only on the seed, the step and the
// number of the microbatch, so neither the plan nor an interruption changes the training data. [Tiled] covers
// held-out text evenly.
package corpus
