// Package transformer trains a GPT without user-written stages. It provides the stages of a language model
// with the layout of GPT-2: an embedding, pre-norm blocks, and a head with fused cross-entropy.
//
// [New] makes the parameters on a device and splits the model's parts over any number of stages,
// even if there are more stages than parts; [NewOn] puts each stage on its own device. The entry
// parts of [Parts] have one element per token. A microbatch is one sequence of up to
// Config.Context tokens, or several that lie one after another (Model.Sequences); microbatches may
// have different lengths. The objective is the loss
// [LossName]. The head records the sum over tokens of weight times the negative log-likelihood of
// the label, in nats, and the sum of the weights.
//
// # The model
//
//	x = table[token] + positions[t]                      embedding
//	r = x + output(attention(qkv(norm1(x))))             block, first half
//	y = r + down(gelu(up(norm2(r))))                     block, second half
//	loss = crossentropy(norm(x)·tableᵀ, label)           head
//
// Matrices are stored inputs×outputs, row-major (qkv is Width×3·Width), tables Vocabulary×Width.
// Dropout is applied to the embedding's output and, before the residual is added, to the results of
// both halves of a block. Its draws are keyed by the runner's seed, the step, the microbatch and a
// name such as "block3.attention.dropout", so they do not depend on the plan, the split or
// recomputation (L9, L13). In Eval nothing is dropped.
//
// # Packed sequences
//
// Linear layers, norms and GELU process all tokens of a microbatch at once, and their gradients are
// sums over tokens in ascending order. Embedding, attention, dropout and the loss process each
// sequence separately, on views of the same buffers. Every number is therefore the same as in a
// microbatch with only this sequence. Memory depends only on the number of tokens, not on the number of
// sequences.
//
// # Memory of a microbatch
//
// From its forward to its backward a microbatch keeps the following numbers of 4-byte elements
// per token, where W is the width and H the number of heads:
//
//	embedding   nothing; the backward reads the tokens from the entry again
//	block       10·W + H
//	              W    the input, shared with the stage that returned it
//	              3·W  queries, keys and values
//	              W    the output of attention, before its projection
//	              H    the logarithm of each row's sum of exponentials
//	              W    the middle of the block, r above
//	              4·W  the input of GELU
//	block, with Config.Recompute
//	            W, the input
//	head        W + 1: the input, and the logarithm of the sum of exponentials, and
//	            as many logits as Config.KeepLogits allows
//
// Normalized inputs, their means and deviations, and the output of GELU are recomputed from these, and so are, in
// tiles, the logits that are not kept. The head keeps none of the logits, the first tiles or all of them,
// according to Config.KeepLogits or to the choice that Model.Record makes from the memory plan. A backward
// releases each kept tensor as soon as its call no longer reads it: during a block's backward, memory use rises by
// at most 4·W, by 5·W with dropout, or by the workspace of attention if that is more.
//
// # Backward in two calls
//
// Every stage can split its backward into I and W, with the same bits as B. Between the two, a
// microbatch keeps the input and the output gradient of each linear layer and each norm, in
// elements per token:
//
//	embedding   W, the gradient of its output, shared with the stage that returned it
//	block       18·W
//	              W    the input, shared with the stage that returned it
//	              6·W  from the forward: the output of attention, the middle, the input of GELU
//	              W    the gradient of its output, shared with the stage that returned it
//	              10·W gradients, of class Carry: 4·W of the input of GELU, 3·W of queries,
//	                   keys and values, W each of the middle and of the outputs of both norms
//	head        2·W + 1: the tensors from the forward, and the gradient of the output of its
//	            norm; if logits are kept, I replaces them by their gradients
//
// I releases tensors that only the weight gradients of frozen layers would need. The head's W
// computes the logits that are not kept for the third time, in tiles.
//
// # FP8
//
// With Config.FP8 the linear layers of the blocks follow a recipe of package fp8: each of their
// three products has two FP8 operands and is summed in float32. Weights, gradients and moments
// stay float32, and so do norms, biases, the embedding and the head (and attention, except with
// FP8Attention). A plan contains a QUANTIZE action for each stage. It makes two copies of every
// matrix, one for the forward and one for the backward; each is released after the last action of
// the step that reads it.
//
// Everything else is quantized when it is used, and most of the results are not kept: the inputs
// of qkv and up are recomputed from x and the middle, with the same bits. From its forward to its
// backward a block keeps the following, in bytes per token and not counting scales,
//
//	block in FP8        28·W + 4·H
//	                      4·W   the input, shared with the stage that returned it
//	                      12·W  queries, keys and values
//	                      4·W   the output of attention
//	                      4·H   the logarithm of each row's sum of exponentials
//	                      4·W   the middle of the block
//	                      4·W   the input of GELU, one byte per element
//	with FP8Attention   16·W + 4·H
//	                      3·W   queries, keys and values, one byte per element
//	                      1·W   the output of attention, only columnwise
//
// while float32 keeps 40·W + 4·H and a model in bfloat16 would keep 20·W + 4·H. In NVFP4 an element
// listed here as one byte, or listed below as an input or gradient, takes half a byte. The backward
// recomputes GELU from its kept input; attention in FP8 uses the kept values in both directions,
// but its own products stay float32 (Config.FP8Attention). Between I and W a block keeps, instead
// of 72·W bytes,
//
//	16·W  the inputs of all four linear layers, and the gradients of their outputs, only
//	      columnwise: W consists of four products of them
//	      and the sums over tokens of biases and norms, 52·W bytes per microbatch
//
// Scales of delayed scaling are frozen for the step, and the measurements of all microbatches are
// merged by maximum, so no schedule, split, assignment to ranks or recompute changes a bit. After
// each Step [Model.RollScales] rolls the scales, once; [Model.MarshalScales] encodes them for a
// checkpoint.
//
// # Parameters
//
// On each device that uses it, a parameter has four buffers of class Resident from New to Close:
// the weight, the gradient and two moments. If stages on the same device use it more than once,
// as with a tied table, every further use has a separate gradient, which the runner adds to the
// first at the end of the step. Initial weights depend only on the seed and the parameter's name.
package transformer
