#include "common.h"

// Constants of loss.Exact: the number of its limbs, which have 32 bits, with a unit of 2^-1074 in the
// first, and the number of additions after which carries are settled.
const u32 limbs = 66;
const u64 settleAt = 1 << 29;

typedef long long i64;

// add adds a finite x exactly, like loss.Exact.Add.
DEVICE void add(i64 *w, double x) {
  u64 b = __builtin_bit_cast(u64, x), e = b >> 52 & 0x7ff, m = b & 0xfffffffffffffull;
  if (e != 0) {
    m |= 1ull << 52;
    e--;
  }
  u32 s = e & 31, i = (u32)(e >> 5);
  u64 low = m << s, high = m >> 1 >> (63 - s);
  i64 sign = (i64)b >> 63;
  w[i] += ((i64)(low & 0xffffffff) ^ sign) - sign;
  w[i + 1] += ((i64)(low >> 32) ^ sign) - sign;
  w[i + 2] += ((i64)high ^ sign) - sign;
  if ((u64)++w[limbs] & settleAt) {
    i64 carry = 0;
#pragma nounroll
    for (u32 k = 0; k < limbs - 1; k++) {
      i64 v = w[k] + carry;
      w[k] = v & 0xffffffff;
      carry = v >> 32;
    }
    w[limbs - 1] += carry;
    w[limbs] = 0;
  }
}

DEVICE bool finite(double x) { return (__builtin_bit_cast(u64, x) >> 52 & 0x7ff) != 0x7ff; }

// note sets *first, which is 0 at the start, to the lowest noted microbatch plus one.
DEVICE void note(i64 *first, i64 microbatch) {
  if (*first == 0 || microbatch < *first - 1) *first = microbatch + 1;
}

// loss_add adds a microbatch's sum, total[0], and its weight, total[1], to a cell of loss.DeviceWords
// words. It notes the microbatch if its weight is invalid, and then adds nothing, or if its sum is not
// finite, and then adds only the weight. It runs in one thread, and kernels of a stream run one after
// another.
KERNEL loss_add(i64 *cell, const double *total, u64 microbatch, const u64 *from) {
  if (from) microbatch = *from;
  i64 *weight = cell + limbs + 1, *count = weight + limbs + 1;
  if (!finite(total[1]) || total[1] < 0) {
    note(count + 2, (i64)microbatch);
    return;
  }
  (*count)++;
  add(weight, total[1]);
  if (finite(total[0]))
    add(cell, total[0]);
  else
    note(count + 1, (i64)microbatch);
}
