#include "philox.h"

// format describes codes with a sign, an exponent and a mantissa. formatOf returns E4M3 for 0, E5M2
// for 1, and E2M1 for 2.
struct format { u32 mantissa, bias, sign, max, inf, nan; };

DEVICE format formatOf(u32 f) {
  if (f == 0) return {3, 7, 0x80, 0x7e, 0, 0x7f};
  if (f == 1) return {2, 15, 0x80, 0x7b, 0x7c, 0x7f};
  return {1, 1, 8, 7, 0, 7};
}

// power returns 2^n for n from -149 to 127.
DEVICE float power(i32 n) { return n >= -126 ? value((u32)(n + 127) << 23) : value(1u << (n + 149)); }

// decode returns the exact value of a code.
DEVICE float decode(format f, u32 code) {
  u32 a = code & (f.sign - 1), exponent = a >> f.mantissa, mantissa = a & ((1 << f.mantissa) - 1);
  if (exponent == 0)
    exponent = 1;
  else
    mantissa += 1 << f.mantissa;
  float v = (float)mantissa * power((i32)(exponent - f.bias - f.mantissa));
  if (a > f.max) v = f.inf && a == f.inf ? infinite : value(0x7fffffff);
  return code & f.sign ? -v : v;
}

// nearest rounds the bits of a finite magnitude to the nearest code, with ties to even, as if there
// were codes beyond the greatest.
DEVICE u32 nearest(format f, u32 a) {
  u32 dropped = 23 - f.mantissa;
  if (a >= (128 - f.bias) << 23) return ((a + (1u << (dropped - 1)) - 1 + (a >> dropped & 1)) >> dropped) - ((127 - f.bias) << f.mantissa);
  u32 magic = (128 + dropped - f.bias) << 23;
  return bits(value(a) + value(magic)) - magic;
}

// chance rounds the bits of a finite magnitude up or down by a random number. The probability of the
// upper code is proportional to the distance from the lower one.
DEVICE u32 chance(format f, u32 a, u32 random) {
  u32 exponent = a >> 23, lowest = 128 - f.bias;
  u64 significand = a & 0x7fffff;
  if (exponent == 0)
    exponent = 1;
  else
    significand |= 0x800000;
  u32 below = 23 - f.mantissa + (exponent < lowest ? lowest - exponent : 0);
  u32 base = exponent > lowest ? (exponent - lowest) << f.mantissa : 0;
  u64 whole = below < 64 ? significand >> below : 0, part = below < 64 ? significand - (whole << below) : significand;
  if (below <= 32)
    part <<= 32 - below;
  else
    part >>= least(below - 32, 63);
  return base + (u32)whole + (u32)((part + random) >> 32);
}

// scaleOf returns most/amax or, unless any is set, the power of two at or below it. amax counts as
// epsilon if it is smaller. If it is then zero or not finite, scaleOf returns 1.
DEVICE float scaleOf(u32 amax, float most, float epsilon, u32 any) {
  float a = value(amax);
  if (a < epsilon) a = epsilon;
  if (a == 0 || bits(a) >= infinity) return 1;
  float scale = most / a;
  if (bits(scale) >= infinity) scale = largest;
  return any ? scale : value(bits(scale) & infinity);
}

// tally holds the measurements of one quantization, in scratch memory.
struct tally { u32 amax, lowest, highest, nonFinite; u64 saturated, underflowed; };

KERNEL quantize_begin(tally *t) { *t = {0, ~0u, 0, 0, 0, 0}; }

DEVICE u32 blockMax(u32 *part, u32 v, u32 group, u32 reach) {
  part[TX] = v;
  SYNC;
#pragma nounroll
  for (u32 k = reach / 2; k > 0; k /= 2) {
    if (TX % reach < k) part[TX] = most(part[TX], part[TX + k]);
    SYNC;
  }
  v = part[TX / group * group];
  SYNC;
  return v;
}

// quantize_amax merges the greatest magnitude of x into t.
KERNEL quantize_amax(tally *t, const float *x, u64 n) {
  SHARED u32 part[128];
  u32 a = 0;
  EACH(i, n) a = most(a, bits(x[i]) & ~sign);
  a = blockMax(part, a, 128, 128);
  if (TX == 0) __atomic_fetch_max(&t->amax, a, __ATOMIC_RELAXED);
}

// tensorScale returns the scale of the whole tensor: *frozen, or a scale computed from its greatest magnitude.
DEVICE float tensorScale(const tally *t, const float *frozen, u32 scaling, u32 f, float margin, float epsilon, u32 any) {
  if (frozen) return *frozen;
  format form = formatOf(f);
  if (scaling == 4) return scaleOf(t->amax, 448 * 6, 0, 1);
  float s = scaleOf(t->amax, decode(form, form.max) * margin, epsilon, any);
  return s < 0x1p-126f ? 0x1p-126f : s;
}

// quantize encodes a matrix of rows×cols whose element (r, c) is x[r·down + c·right]. A block encodes
// 128 columns of one row, or of 128 rows for Tiles128, with a thread for each column. scaling is
// PerTensor, Rows128, Tiles128, MX32 or NV16, from 0 on. scales is at factors in MX32, and after the only
// factor in NV16.
KERNEL quantize(u8 *codes, float *factors, u8 *scales, tally *cell, const tally *whole, const float *frozen, const float *x, u32 rows,
                u32 cols, u64 down, u64 right, u32 f, u32 scaling, float margin, float epsilon, u32 any, u32 lower, u32 stochastic,
                u64 seed, u64 stream, const u64 *from) {
  if (from) stream = *from;
  SHARED u32 part[128];
  SHARED u32 codesOfRow[128];
  format form = formatOf(f);
  u32 c = BY * 128 + TX, across = scaling == 0 ? 1 : scaling == 3 ? (cols + 31) / 32 : scaling == 4 ? (cols + 15) / 16 : (cols + 127) / 128;
  u32 group = scaling == 3 ? 32 : scaling == 4 ? 16 : 128, high = scaling == 2 ? 128 : 1;
  u32 r0 = BX * high, r1 = least(rows, r0 + high), block = c / group;
  float scale = 1;
  bool first = TX % group == 0 && c < cols, spoilt = false;
  u32 lowest = ~0u, highest = 0;
  if (scaling == 0 || scaling == 4) {
    scale = tensorScale(whole, frozen, scaling, f, margin, epsilon, any);
    if (BX == 0 && BY == 0 && TX == 0) {
      factors[0] = 1 / scale;
      lowest = highest = bits(scale);
    }
  }
  if (scaling != 0) {
    u32 a = 0;
    if (c < cols)
      for (u32 r = r0; r < r1; r++) {
        u32 v = bits(x[r * down + c * right]) & ~sign;
        if (scaling != 4 || v <= infinity) a = most(a, v);
      }
    a = blockMax(part, a, group, group);
    float divisor = 1;
    bool counts = a > 0 || epsilon > 0;
    if (scaling == 3) {
      u32 greatest = bits(decode(form, form.max));
      i32 e = (i32)(a >> 23) - (i32)(greatest >> 23) + 127;
      if (!lower && (a & 0x7fffff) > (greatest & 0x7fffff)) e++;
      if (e < 0) e = 0;
      spoilt = a >= infinity;
      scale = spoilt ? 1 : power(127 - e);
      counts = a > 0;
      if (first) scales[(u64)r0 * across + block] = spoilt ? 255 : (u8)e;
    } else if (scaling == 4) {
      u32 v = bits(value(a) * (scale * (float)(1.0 / 6)));
      u32 code = v >= infinity ? 0x7e : least(nearest(formatOf(0), v), 0x7e);
      divisor = decode(formatOf(0), code) * (1 / scale);
      scale = 1 / divisor;
      if (scale > largest) scale = largest;
      counts = false;
      if (first) scales[(u64)r0 * across + block] = (u8)code;
    } else {
      scale = scaleOf(a, decode(form, form.max), epsilon, any);
      if (first) factors[(u64)BX * across + block] = 1 / scale;
    }
    if (first && counts && a < infinity) lowest = highest = bits(scale);
  }
  u32 amax = 0, nonFinite = 0, saturated = 0, underflowed = 0;
#pragma nounroll
  for (u32 r = r0; r < r1; r++) {
    u32 code = 0;
    if (c < cols) {
      u64 at = r * down + c * right;
      float v = x[at];
      u32 b = bits(v), a = b & ~sign, scaled = bits(v * scale) & ~sign, rounded;
      if (a > infinity)
        rounded = form.nan;
      else if (scaled >= infinity)
        rounded = 1 << 16;
      else if (stochastic && !spoilt) {
        draws d = philox(seed, stream, at / 4);
        u32 low = at & 1 ? d.u[1] : d.u[0], up = at & 1 ? d.u[3] : d.u[2];
        rounded = chance(form, scaled, at & 2 ? up : low);
      } else
        rounded = nearest(form, scaled);
      bool over = rounded > form.max && a <= infinity;
      code = over ? form.max : rounded;
      amax = most(amax, a);
      if (a >= infinity)
        nonFinite++;
      else if (scaled >= infinity || (code >= form.max && nearest(form, scaled) > form.max))
        saturated++;
      else if (code == 0 && a != 0)
        underflowed++;
      code |= b & sign ? form.sign : 0;
      if (spoilt) code = form.nan;
      if (f != 2) codes[(u64)r * cols + c] = (u8)code;
    }
    if (f == 2) {
      codesOfRow[TX] = code;
      SYNC;
      if (TX % 2 == 0 && c < cols) codes[(u64)r * ((cols + 1) / 2) + c / 2] = (u8)(code | codesOfRow[TX + 1] << 4);
      SYNC;
    }
  }
  if (cell && c < cols) {
    __atomic_fetch_max(&cell->amax, amax, __ATOMIC_RELAXED);
    if (nonFinite) __atomic_fetch_add(&cell->nonFinite, nonFinite, __ATOMIC_RELAXED);
    if (saturated) __atomic_fetch_add(&cell->saturated, saturated, __ATOMIC_RELAXED);
    if (underflowed) __atomic_fetch_add(&cell->underflowed, underflowed, __ATOMIC_RELAXED);
    if (highest) {
      __atomic_fetch_min(&cell->lowest, lowest, __ATOMIC_RELAXED);
      __atomic_fetch_max(&cell->highest, highest, __ATOMIC_RELAXED);
    }
  }
}

// quantize_end merges the measurements of a quantization into the words of a tally (kernels.TallyWords).
KERNEL quantize_end(u32 *words, const tally *t) {
  words[0] = most(words[0], t->amax);
  if (t->highest && (words[1] == 0 || t->lowest < words[1])) words[1] = t->lowest;
  words[2] = most(words[2], t->highest);
  u64 n = (u64)words[3] + t->nonFinite;
  words[3] = n > 0x7fffffff ? 0x7fffffff : (u32)n;
  u64 s = ((u64)words[5] << 32 | words[4]) + t->saturated, u = ((u64)words[7] << 32 | words[6]) + t->underflowed;
  words[4] = (u32)s;
  words[5] = (u32)(s >> 32);
  words[6] = (u32)u;
  words[7] = (u32)(u >> 32);
}

// matrix is a quantized operand.
struct matrix { const u8 *codes; const float *factors; const u8 *scales; u32 cols, f, scaling; };

// finite returns v·s or, if v and s are finite and their product is not, the greatest number with the
// sign of the product.
DEVICE float finite(float v, float s) {
  float p = v * s;
  bool over = (bits(p) & ~sign) >= infinity && (bits(v) & ~sign) < infinity && (bits(s) & ~sign) < infinity;
  return over ? value((bits(p) & sign) | bits(largest)) : p;
}

// element decodes a code and, in NV16, multiplies it by the scale of its block. If limited is set, it
// also multiplies by factor, and replaces infinite products by the greatest number.
DEVICE float element(matrix m, u32 r, u32 c, float factor, bool limited) {
  if (m.f == 2) {
    u32 code = m.codes[(u64)r * ((m.cols + 1) / 2) + c / 2] >> (4 * (c & 1)) & 15;
    float s = decode(formatOf(0), m.scales[(u64)r * ((m.cols + 15) / 16) + c / 16]);
    s = limited ? finite(s, factor) : s;
    return limited ? finite(decode(formatOf(2), code), s) : decode(formatOf(2), code) * s;
  }
  float v = decode(formatOf(m.f), m.codes[(u64)r * m.cols + c]);
  return limited ? finite(v, factor) : v;
}

// factorOf returns the factor by which an element is multiplied besides the scale of its block in NV16.
DEVICE float factorOf(matrix m, u32 r, u32 c) {
  u32 across = (m.cols + 127) / 128;
  if (m.scaling == 1) return m.factors[(u64)r * across + c / 128];
  if (m.scaling == 2) return m.factors[(u64)(r / 128) * across + c / 128];
  if (m.scaling == 3) {
    u32 e = m.scales[(u64)r * ((m.cols + 31) / 32) + c / 32];
    return e == 255 ? value(0x7fffffff) : power((i32)e - 127);
  }
  return m.factors[0];
}

KERNEL dequantize(float *dst, const u8 *codes, const float *factors, const u8 *scales, u64 n, u32 cols, u32 f, u32 scaling, u32 rows,
                  u32 transposed) {
  matrix m = {codes, factors, scales, cols, f, scaling};
  EACH(i, n) {
    u32 r = (u32)(i / cols), c = (u32)(i % cols);
    dst[transposed ? (u64)c * rows + r : i] = element(m, r, c, factorOf(m, r, c), true);
  }
}

// quantized_matmul sets C to A·Bᵀ, plus the previous C if accumulate is set, plus bias if it is not null,
// in tiles of 16×16 with a thread for each element. A thread adds the products of a span of k, multiplies
// the sum by the factors of both operands, and adds it to its element.
KERNEL quantized_matmul(float *to, const u8 *codesA, const float *factorsA, const u8 *scalesA, u32 fA, u32 scalingA, const u8 *codesB,
                        const float *factorsB, const u8 *scalesB, u32 fB, u32 scalingB, const float *bias, u32 m, u32 n, u32 depth,
                        u32 span, u32 accumulate) {
  SHARED float s[16][33], t[16][33];
  matrix a = {codesA, factorsA, scalesA, depth, fA, scalingA}, b = {codesB, factorsB, scalesB, depth, fB, scalingB};
  u32 i = TX / 16, j = TX % 16, row = BY * 16 + i, col = BX * 16 + j;
  bool works = row < m && col < n;
  float sum = works && accumulate ? to[(u64)row * n + col] : 0, part = 0;
#pragma nounroll
  for (u32 k0 = 0; k0 < depth; k0 += 32) {
#pragma nounroll
    for (u32 e = TX; e < 512; e += 256) {
      u32 r = e / 32, k = k0 + e % 32;
      s[r][e % 32] = k < depth && BY * 16 + r < m ? element(a, BY * 16 + r, k, 1, false) : 0;
      t[r][e % 32] = k < depth && BX * 16 + r < n ? element(b, BX * 16 + r, k, 1, false) : 0;
    }
    SYNC;
    if (works) {
      u32 end = least(32, depth - k0);
#pragma nounroll
      for (u32 k = 0; k < end; k++) part = fma(s[i][k], t[j][k], part);
      if ((k0 + 32) % span == 0 || k0 + 32 >= depth) {
        sum += part * factorOf(a, row, k0) * factorOf(b, col, k0);
        part = 0;
      }
    }
    SYNC;
  }
  if (works) to[(u64)row * n + col] = bias ? sum + bias[col] : sum;
}
