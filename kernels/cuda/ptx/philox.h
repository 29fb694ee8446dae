#pragma once
#include "common.h"

// philox returns the four draws of a block, by Philox4x32-10 (Salmon et al. 2011). Its key is seed, and
// its counter is block and stream, low words first.
struct draws { u32 u[4]; };

DEVICE draws philox(u64 seed, u64 stream, u64 block) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (u32 round = 0; round < 10; round++) {
    u64 a = (u64)0xd2511f53u * c0, b = (u64)0xcd9e8d57u * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ k0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c3 = (u32)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}
