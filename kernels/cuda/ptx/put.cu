#include "common.h"

// put writes 16 words, which kernels in a graph read through their parameter from. It runs in one thread.
KERNEL put(u64 *to, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l, u64 m, u64 n, u64 o, u64 p) {
  to[0] = a, to[1] = b, to[2] = c, to[3] = d, to[4] = e, to[5] = f, to[6] = g, to[7] = h;
  to[8] = i, to[9] = j, to[10] = k, to[11] = l, to[12] = m, to[13] = n, to[14] = o, to[15] = p;
}
