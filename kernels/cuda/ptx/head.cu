#include "common.h"

const u32 threads = 128;

// head_softmax updates the state of each token with a tile of logits (tokens×cols), whose first column
// is word v0 of the vocabulary. A block updates the state of one token: its largest logit, the sum of
// exponentials relative to that logit, and the logit of its label.
KERNEL head_softmax(double *rows, const float *logits, const i32 *labels, u32 v0, u32 cols) {
  SHARED double part[threads];
  SHARED float tops[threads];
  const float *row = logits + (u64)BX * cols;
  double *state = rows + 3 * (u64)BX;
  float top = -largest;
  for (u32 j = TX; j < cols; j += threads)
    if (row[j] > top) top = row[j];
  tops[TX] = top;
  SYNC;
#pragma nounroll
  for (u32 k = threads / 2; k > 0; k /= 2) {
    if (TX < k && tops[TX + k] > tops[TX]) tops[TX] = tops[TX + k];
    SYNC;
  }
  top = tops[0];
  double before = -largest, sum = 0;
  if (v0 > 0) {
    before = state[0];
    if (before > top) top = (float)before;
  }
  for (u32 j = TX; j < cols; j += threads) sum += exponential(row[j] - top);
  part[TX] = sum;
  halve(part, threads);
  if (TX == 0) {
    if (v0 > 0) part[0] += state[1] * exponential((float)before - top);
    state[0] = top;
    state[1] = part[0];
    u32 label = (u32)labels[BX] - v0;
    if (label < cols) state[2] = row[label];
  }
}

// head_sum sets lse to the logarithms of the sums of exponentials. It adds, in the order of the tokens
// whose weight is not 0, their weighted losses to total[0] and their weights to total[1], which start
// at 0 if first is set. It runs in one block.
KERNEL head_sum(float *lse, double *total, double *rows, const float *weights, u32 tokens, u32 first) {
  for (u32 t = TX; t < tokens; t += NX) {
    double *state = rows + 3 * (u64)t, l = state[0];
    l += state[1] > 0 && state[1] <= 1e300 ? logarithm(state[1]) : state[1] > 0 ? state[1] : state[1] == 0 ? -infinite : state[1];
    lse[t] = (float)l;
    state[0] = l - state[2];
  }
  SYNC;
  if (TX == 0) {
    double sum = first ? 0 : total[0], weight = first ? 0 : total[1];
    for (u32 t = 0; t < tokens; t++)
      if (weights[t] != 0) {
        sum += weights[t] * rows[3 * (u64)t];
        weight += weights[t];
      }
    total[0] = sum;
    total[1] = weight;
  }
}

// head_grad replaces a tile of logits by their gradients, seed·weight·(softmax - onehot).
KERNEL head_grad(float *logits, const float *lse, const float *weights, const i32 *labels, float seed, u32 v0, u64 n, u32 cols) {
  EACH(i, n) {
    u64 t = i / cols;
    float scale = seed * weights[t], g = 0;
    if (scale != 0) {
      g = scale * exponential(logits[i] - lse[t]);
      if ((u32)labels[t] - v0 == i % cols) g -= scale;
    }
    logits[i] = g;
  }
}

// head_clear sets the rows of dx to 0 for tokens of weight 0.
KERNEL head_clear(float *dx, const float *weights, u64 n, u32 width) {
  EACH(i, n) if (weights[i / width] == 0) dx[i] = 0;
}
