#include "common.h"

// Causal attention in tiles of T queries and T keys, with 4 threads for each row of a tile. Blocks along
// y are the heads. Only the scores of one tile exist at a time, in shared memory. D is the maximum number
// of elements of a head. Scores of a query and a later key are not computed.
template <u32 D, u32 T> struct tile { float at[T][D + 1]; };
template <u32 T> struct square { float at[T][T + 1]; };

// fetch copies rows r0 to r0+T-1 of a head, multiplied by scale. Rows from tokens on, and up to three
// columns from dim on, are 0.
template <u32 D, u32 T> DEVICE void fetch(tile<D, T> &to, const float *from, u64 stride, u32 r0, u32 tokens, u32 dim, float scale) {
#pragma nounroll
  for (u32 e = TX, whole = (dim + 3) / 4 * 4; e < T * whole; e += 4 * T) {
    u32 r = e / whole, d = e % whole;
    to.at[r][d] = r0 + r < tokens && d < dim ? from[(r0 + r) * stride + d] * scale : 0;
  }
}

// dot returns Σ a·b of two rows, added in ascending order.
DEVICE float dot(const float *a, const float *b, u32 dim) {
  float s = 0;
#pragma nounroll
  for (u32 d = 0; d < dim; d++) s = fma(a[d], b[d], s);
  return s;
}

// gather adds weight·row to the sums of a thread, which are for elements q, q+4, and so on.
template <u32 D> DEVICE void gather(float (&sums)[D / 4], float weight, const float *row, u32 q, u32 dim) {
#pragma unroll
  for (u32 i = 0; i < D / 4; i++) {
    if (4 * i >= dim) break;
    sums[i] = fma(weight, row[4 * i + q], sums[i]);
  }
}

template <u32 D> DEVICE void put(float *to, const float (&sums)[D / 4], float divisor, u32 q, u32 dim) {
#pragma unroll
  for (u32 i = 0; i < D / 4; i++)
    if (4 * i + q < dim) to[4 * i + q] = sums[i] / divisor;
}

template <u32 D, u32 T>
DEVICE void forward(float *out, float *lse, const float *qkv, u32 tokens, u32 dim, float scale) {
  SHARED tile<D, T> query, key, val;
  SHARED square<T> s;
  u64 width = (u64)GY * dim, head = (u64)BY * dim;
  const float *base = qkv + head;
  u32 r = TX / 4, q = TX % 4, q0 = BX * T, i = q0 + r;
  fetch(query, base, 3 * width, q0, tokens, dim, scale);
  float sums[D / 4], top = -largest, total = 0;
#pragma unroll
  for (u32 e = 0; e < D / 4; e++) sums[e] = 0;
#pragma nounroll
  for (u32 k0 = 0; k0 <= q0; k0 += T) {
    fetch(key, base + width, 3 * width, k0, tokens, dim, 1);
    fetch(val, base + 2 * width, 3 * width, k0, tokens, dim, 1);
    SYNC;
    u32 seen = i < tokens ? least(T, i + 1 - k0) : 0;
#pragma nounroll
    for (u32 j = q; j < seen; j += 4) s.at[r][j] = dot(query.at[r], key.at[j], dim);
    SYNC;
    float before = top;
#pragma nounroll
    for (u32 j = 0; j < seen; j++)
      if (s.at[r][j] > top) top = s.at[r][j];
    float shrink = exponential(before - top);
    total *= shrink;
#pragma unroll
    for (u32 e = 0; e < D / 4; e++) sums[e] *= shrink;
#pragma nounroll
    for (u32 j = 0; j < seen; j++) {
      float p = exponential(s.at[r][j] - top);
      total += p;
      gather<D>(sums, p, val.at[j], q, dim);
    }
    SYNC;
  }
  if (i < tokens) {
    put<D>(out + i * width + head, sums, total, q, dim);
    if (q == 0) lse[(u64)BY * tokens + i] = (float)(top + logarithm(total));
  }
}

// back computes the gradient of the queries of a tile or, if ofKeys is set, of its keys and values.
template <u32 D, u32 T, bool ofKeys>
DEVICE void back(float *dqkv, const float *dout, const float *qkv, const float *lse, const float *delta, u32 tokens, u32 dim, float scale) {
  SHARED tile<D, T> query, key, val, grad;
  SHARED square<T> ps, ds;
  u64 width = (u64)GY * dim, head = (u64)BY * dim;
  const float *base = qkv + head, *from = dout + head;
  u32 r = TX / 4, q = TX % 4, own = BX * T;
  float first[D / 4], second[D / 4];
#pragma unroll
  for (u32 e = 0; e < D / 4; e++) first[e] = second[e] = 0;
  u32 end = ofKeys ? tokens : own + 1;
#pragma nounroll
  for (u32 other = ofKeys ? own : 0; other < end; other += T) {
    u32 q0 = ofKeys ? other : own, k0 = ofKeys ? own : other;
    fetch(query, base, 3 * width, q0, tokens, dim, scale);
    fetch(key, base + width, 3 * width, k0, tokens, dim, 1);
    fetch(val, base + 2 * width, 3 * width, k0, tokens, dim, 1);
    fetch(grad, from, width, q0, tokens, dim, 1);
    SYNC;
    u32 i = q0 + r, seen = i < tokens ? least(T, i + 1 - k0) : 0;
#pragma nounroll
    for (u32 j = q; j < T; j += 4) {
      float p = 0, d = 0;
      if (j < seen) {
        u64 at = (u64)BY * tokens + i;
        p = exponential(dot(query.at[r], key.at[j], dim) - lse[at]);
        d = p * (dot(grad.at[r], val.at[j], dim) - delta[at]);
      }
      ps.at[r][j] = p;
      ds.at[r][j] = d;
    }
    SYNC;
    if (ofKeys) { // row r of the tile is key k0+r, which queries k0+r and later see
      u32 l = k0 + r < tokens ? (q0 == k0 ? r : 0) : T, stop = least(T, tokens - q0);
#pragma nounroll
      for (; l < stop; l++) {
        gather<D>(first, ds.at[l][r], query.at[l], q, dim);
        gather<D>(second, ps.at[l][r], grad.at[l], q, dim);
      }
    } else {
#pragma nounroll
      for (u32 j = 0; j < seen; j++) gather<D>(first, scale * ds.at[r][j], key.at[j], q, dim);
    }
    SYNC;
  }
  if (own + r < tokens) {
    float *to = dqkv + (u64)(own + r) * 3 * width + head;
    put<D>(to + (ofKeys ? width : 0), first, 1, q, dim);
    if (ofKeys) put<D>(to + 2 * width, second, 1, q, dim);
  }
}

// attention_delta sets delta to Σ dout·out of each head and token.
KERNEL attention_delta(float *delta, const float *out, const float *dout, u64 n, u32 tokens, u32 dim) {
  EACH(i, n) {
    u64 at = (i % tokens * (n / tokens) + i / tokens) * dim;
    double s = 0;
    for (u32 d = 0; d < dim; d++) s += (double)out[at + d] * dout[at + d];
    delta[i] = (float)s;
  }
}

KERNEL attention(float *out, float *lse, const float *qkv, u32 tokens, u32 dim, float scale) {
  forward<128, 16>(out, lse, qkv, tokens, dim, scale);
}

KERNEL attention_queries(float *dqkv, const float *dout, const float *qkv, const float *lse, const float *delta, u32 tokens, u32 dim,
                         float scale) {
  back<128, 16, false>(dqkv, dout, qkv, lse, delta, tokens, dim, scale);
}

KERNEL attention_keys(float *dqkv, const float *dout, const float *qkv, const float *lse, const float *delta, u32 tokens, u32 dim,
                      float scale) {
  back<128, 16, true>(dqkv, dout, qkv, lse, delta, tokens, dim, scale);
}
