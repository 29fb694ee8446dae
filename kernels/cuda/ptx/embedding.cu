#include "common.h"

// in_range sets bad[0] to the index of the first id that is not a row of the vocabulary, and bad[1]
// to that id. If there is none, it sets them to n and 0. It runs in one block of 256 threads.
KERNEL in_range(u32 *bad, const i32 *ids, u32 n, u32 vocabulary) {
  SHARED u32 first[256];
  u32 at = n;
  for (u32 i = TX; i < n && at == n; i += 256)
    if ((u32)ids[i] >= vocabulary) at = i;
  first[TX] = at;
  SYNC;
#pragma nounroll
  for (u32 k = 128; k > 0; k /= 2) {
    if (TX < k) first[TX] = least(first[TX], first[TX + k]);
    SYNC;
  }
  if (TX == 0) {
    bad[0] = first[0];
    bad[1] = first[0] < n ? (u32)ids[first[0]] : 0;
  }
}

KERNEL embed(float *x, const i32 *ids, const float *table, const float *positions, u64 n, u32 width) {
  EACH(i, n) x[i] = table[(u64)ids[i / width] * width + i % width] + positions[i];
}

// embed_grad runs a block for each token. The block of the first token with an id adds the rows of all
// tokens with that id, in ascending order. The other blocks do nothing.
KERNEL embed_grad(float *dtable, const i32 *ids, const float *dx, u32 tokens, u32 width) {
  i32 id = ids[BX];
  for (u32 t = 0; t < BX; t++)
    if (ids[t] == id) return;
  for (u32 j = TX; j < width; j += NX) {
    float sum = dtable[(u64)id * width + j];
    for (u32 t = BX; t < tokens; t++)
      if (ids[t] == id) sum += dx[(u64)t * width + j];
    dtable[(u64)id * width + j] = sum;
  }
}
