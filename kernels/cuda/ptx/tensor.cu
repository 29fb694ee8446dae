#include "common.h"

// Products on tensor cores, for Config.Products BFloat16. Operands are rounded to bfloat16 when they are
// copied to shared memory, products are exact, and sums are in float32. A block computes a tile of 64×64
// elements of C, and each of its four warps 32×32 of them, from 32 columns of op(A) at a time. A word of
// shared memory holds two neighbors in k. Rows are padded so that a warp's accesses spread over all banks.
const u32 side = 64, deep = 32, words = deep / 2, stride = words + 4;

// pair returns two numbers rounded to bfloat16, to nearest with ties to even, the first in the low half.
DEVICE u32 pair(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// multiply adds a·b, of 16×16 and 16×8 elements, to sums. PTX specifies which thread of a warp has which elements.
DEVICE void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// fetch copies a tile of op(A), or of the transpose of op(B), to shared memory and rounds it. The tile
// begins at row row0, of rows in all, and at column k0, of depth in all. Elements outside the matrix are
// 0, and so is column k if alive[k] is 0. If across is set, k is the slow dimension in memory.
DEVICE void fetch(u32 *to, const float *from, const float *alive, u32 row0, u32 rows, u32 k0, u32 depth, u32 across) {
  float v[2 * side * words / 128]; // all loads are issued before the first value is used
#pragma unroll
  for (u32 i = 0; i < 2 * side * words / 128; i++) {
    u32 e = TX + i / 2 * 128, r = row0 + (across ? e % side : e / words), k = k0 + 2 * (across ? e / side : e % words) + i % 2;
    bool inside = (r < rows) & (k < depth);
    u64 at = across ? (u64)k * rows + r : (u64)r * depth + k;
    float x = from[inside ? at : 0]; // element 0 exists, so that no branch is needed
    if (alive) inside &= alive[k < depth ? k : 0] != 0;
    v[i] = inside ? x : 0;
  }
#pragma unroll
  for (u32 i = 0; i < side * words / 128; i++) {
    u32 e = TX + i * 128;
    to[(across ? e % side : e / words) * stride + (across ? e / side : e % words)] = pair(v[2 * i], v[2 * i + 1]);
  }
}

// matmul_bf16 has the parameters of matmul. The sum of an element is one chain of steps of 16
// products, in ascending order of k, so it depends on its row and its column alone.
KERNEL matmul_bf16(float *c, const float *a, const float *b, const float *bias, const float *alive, u32 m, u32 n, u32 depth,
                   u32 transA, u32 transB, u32 accumulate) {
  SHARED u32 s[side * stride], t[side * stride];
  u32 row0 = BY * side, col0 = BX * side, group = TX % 32 / 4, lane = TX % 4;
  u32 row = TX / 64 * 32 + group, col = TX / 32 % 2 * 32;
  float sums[2][4][4];
#define OF(e) u32 r = row0 + row + 16 * i + (e) / 2 * 8, q = col0 + col + 8 * j + 2 * lane + (e) % 2
#pragma unroll
  for (u32 i = 0; i < 2; i++)
#pragma unroll
    for (u32 j = 0; j < 4; j++)
#pragma unroll
      for (u32 e = 0; e < 4; e++) {
        OF(e);
        sums[i][j][e] = accumulate && r < m && q < n ? c[(u64)r * n + q] : 0;
      }
#pragma nounroll
  for (u32 k0 = 0; k0 < depth; k0 += deep) {
    fetch(s, a, 0, row0, m, k0, depth, transA);
    fetch(t, b, alive, col0, n, k0, depth, !transB);
    SYNC;
#pragma unroll
    for (u32 w = 0; w < words; w += 8) {
      u32 as[2][4];
#pragma unroll
      for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 e = 0; e < 4; e++) as[i][e] = s[(row + 16 * i + e % 2 * 8) * stride + w + lane + e / 2 * 4];
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        u32 at = (col + 8 * j + group) * stride + w + lane, b0 = t[at], b1 = t[at + 4];
#pragma unroll
        for (u32 i = 0; i < 2; i++) multiply(sums[i][j], as[i], b0, b1);
      }
    }
    SYNC;
  }
#pragma unroll
  for (u32 i = 0; i < 2; i++)
#pragma unroll
    for (u32 j = 0; j < 4; j++)
#pragma unroll
      for (u32 e = 0; e < 4; e++) {
        OF(e);
        if (r < m && q < n) c[(u64)r * n + q] = bias ? sums[i][j][e] + bias[q] : sums[i][j][e];
      }
}
