#include "common.h"

KERNEL sum(float *dst, const float *x, const float *y, u64 n) { EACH(i, n) dst[i] = x[i] + y[i]; }

// The tanh form of GELU is x·σ(z) with z = 2·sqrt(2/π)·(x + 0.044715·x³).
const float gelu1 = 1.5957691216057308f, gelu3 = 1.5957691216057308f * 0.044715f;

DEVICE float inner(float x) { return x * fma(gelu3 * x, x, gelu1); }

KERNEL gelu(float *y, const float *x, u64 n) {
  EACH(i, n) {
    float v = x[i], a = __builtin_fabsf(v), e = exponential(-__builtin_fabsf(inner(v)));
    y[i] = (0.5f * v + 0.5f * a) - a * (e / (1 + e));
  }
}

KERNEL gelu_grad(float *dx, const float *dy, const float *x, u64 n) {
  EACH(i, n) {
    float v = x[i], z = inner(v), e = exponential(-__builtin_fabsf(z));
    float s = 1 / (1 + e), r = e * s;
    float slope = 0.5f + value(bits(0.5f - r) ^ (bits(z) & sign));
    if (e != 0) slope += v * s * r * fma(3 * gelu3 * v, v, gelu1);
    dx[i] = dy[i] * slope;
  }
}
