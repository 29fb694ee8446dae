#include "common.h"

// A block computes a tile of 64×64 elements of C, and a thread 4×4 of them, from 16 columns of op(A)
// at a time.
const u32 side = 64, deep = 16, stride = side + 4;

// matmul sets C to op(A)·op(B), plus the previous C if accumulate is set, plus bias if it is not null.
// If alive is not null, row k of op(B) counts as 0 if alive[k] is 0. Each element of C is one chain of
// multiply-adds in ascending order of k.
KERNEL matmul(float *c, const float *a, const float *b, const float *bias, const float *alive, u32 m, u32 n, u32 depth,
              u32 transA, u32 transB, u32 accumulate) {
  SHARED float4 s4[deep * stride / 4], t4[deep * stride / 4];
  float *s = (float *)s4, *t = (float *)t4;
  u32 row0 = BY * side, col0 = BX * side;
  u32 row = TX / 16 * 4, col = TX % 16 * 4;
  bool works = row0 + row < m && col0 + col < n;
  float sums[4][4];
#pragma unroll
  for (u32 i = 0; i < 4; i++)
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
      u32 r = row0 + row + i, q = col0 + col + j;
      sums[i][j] = accumulate && r < m && q < n ? c[(u64)r * n + q] : 0;
    }
#pragma nounroll
  for (u32 k0 = 0; k0 < depth; k0 += deep) {
#pragma nounroll
    for (u32 e = TX; e < side * deep; e += 256) {
      u32 k = transA ? e / side : e % deep, r = transA ? e % side : e / deep;
      float v = 0;
      if (k0 + k < depth && row0 + r < m) v = transA ? a[(u64)(k0 + k) * m + row0 + r] : a[(u64)(row0 + r) * depth + k0 + k];
      s[k * stride + r] = v;
      k = transB ? e % deep : e / side, r = transB ? e / deep : e % side;
      v = 0;
      if (k0 + k < depth && col0 + r < n && !(alive && alive[k0 + k] == 0))
        v = transB ? b[(u64)(col0 + r) * depth + k0 + k] : b[(u64)(k0 + k) * n + col0 + r];
      t[k * stride + r] = v;
    }
    SYNC;
    if (works) {
      u32 end = least(deep, depth - k0);
#pragma unroll 2
      for (u32 k = 0; k < end; k++) {
        float4 x = s4[(k * stride + row) / 4], y = t4[(k * stride + col) / 4];
        float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (u32 i = 0; i < 4; i++)
#pragma unroll
          for (u32 j = 0; j < 4; j++) sums[i][j] = fma(xs[i], ys[j], sums[i][j]);
      }
    }
    SYNC;
  }
#pragma unroll
  for (u32 i = 0; i < 4; i++)
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
      u32 r = row0 + row + i, q = col0 + col + j;
      if (r < m && q < n) c[(u64)r * n + q] = bias ? sums[i][j] + bias[q] : sums[i][j];
    }
}

KERNEL add_row(float *x, const float *row, u64 n, u32 cols) { EACH(i, n) x[i] += row[i % cols]; }

// sum_rows adds the rows of x in ascending order, with a thread for each column.
KERNEL sum_rows(float *dst, const float *x, u32 rows, u32 cols, u32 accumulate) {
  EACH(j, cols) {
    float sum = accumulate ? dst[j] : 0;
    for (u32 r = 0; r < rows; r++) sum += x[(u64)r * cols + j];
    dst[j] = sum;
  }
}
