#include "philox.h"

// dropout processes four elements with the four draws of a block: an element becomes 0 if its draw
// is below limit, and is divided by keep otherwise.
KERNEL dropout(float *y, const float *x, u64 n, u64 seed, u64 stream, const u64 *from, u32 limit, float keep) {
  if (from) stream = *from;
  EACH(block, (n + 3) / 4) {
    draws d = philox(seed, stream, block);
#pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (4 * block + i < n) y[4 * block + i] = d.u[i] < limit ? 0 : x[4 * block + i] / keep;
  }
}

// turn sets c and s to the cosine and the sine of an angle from 0 to 2π, by Taylor series within an
// eighth of a turn. The parts of π/4 have so few bits that their products with an octant are exact.
DEVICE void turn(double angle, double *c, double *s) {
  i32 octant = (i32)(angle * 1.2732395447351628);
  octant += octant & 1;
  double q = octant, r = ((angle - q * 0x1.921fb5p-1) - q * 0x1.110b46p-27) - q * 0x1.1a62633145c07p-55;
  double z = r * r, a = -1.0 / 1307674368000.0, b = 1.0 / 20922789888000.0;
  a = a * z + 1.0 / 6227020800.0;
  a = a * z - 1.0 / 39916800;
  a = a * z + 1.0 / 362880;
  a = a * z - 1.0 / 5040;
  a = a * z + 1.0 / 120;
  a = a * z - 1.0 / 6;
  b = b * z - 1.0 / 87178291200.0;
  b = b * z + 1.0 / 479001600;
  b = b * z - 1.0 / 3628800;
  b = b * z + 1.0 / 40320;
  b = b * z - 1.0 / 720;
  b = b * z + 1.0 / 24;
  double sine = r + r * z * a, cosine = 1 - z * 0.5 + z * z * b;
  u32 quarter = (u32)octant / 2 & 3;
  *c = quarter & 1 ? sine : cosine;
  *s = quarter & 1 ? cosine : sine;
  if (quarter == 1 || quarter == 2) *c = -*c;
  if (quarter >= 2) *s = -*s;
}

// normal draws pairs of numbers by the Box–Muller method.
KERNEL normal(float *x, u64 n, u64 seed, u64 stream, float std) {
  EACH(block, (n + 3) / 4) {
    draws d = philox(seed, stream, block);
#pragma unroll
    for (u32 i = 0; i < 4; i += 2) {
      double radius = __builtin_sqrt(-2 * logarithm((d.u[i] + 0.5) * 0x1p-32)), c, s;
      turn(6.283185307179586 * (d.u[i + 1] + 0.5) * 0x1p-32, &c, &s);
      if (4 * block + i < n) x[4 * block + i] = (float)(std * (radius * c));
      if (4 * block + i + 1 < n) x[4 * block + i + 1] = (float)(std * (radius * s));
    }
  }
}
