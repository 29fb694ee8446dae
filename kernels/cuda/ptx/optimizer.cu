#include "common.h"

// squares sets parts[i] to the sum of the squares of block i's share. It runs in 64 blocks of 256 threads.
KERNEL squares(double *parts, const float *x, u64 n) {
  SHARED double part[256];
  double sum = 0;
  EACH(i, n) sum += (double)x[i] * x[i];
  part[TX] = sum;
  halve(part, 256);
  if (TX == 0) parts[BX] = part[0];
}

// squares_sum adds the sums of the 64 blocks in order. It runs in one thread.
KERNEL squares_sum(double *sum, const double *parts) {
  double all = 0;
#pragma nounroll
  for (u32 i = 0; i < 64; i++) all += parts[i];
  *sum = all;
}

KERNEL adamw(float *weight, const float *grad, float *ms, float *vs, u64 n, float factor, float beta1, float rest1, float beta2,
             float rest2, float correct1, float correct2, float epsilon, float rate, float decay) {
  EACH(i, n) {
    float old = weight[i], g = factor * grad[i];
    float m = beta1 * ms[i] + rest1 * g, v = beta2 * vs[i] + rest2 * g * g;
    ms[i] = m;
    vs[i] = v;
    weight[i] = old - rate * (m * correct1 / (__builtin_sqrtf(v * correct2) + epsilon) + decay * old);
  }
}
