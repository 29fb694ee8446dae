// Definitions that all kernels share. Every number is the result of additions, multiplications,
// fused multiply-adds, divisions and square roots, each rounded once to nearest, in an order that
// depends on shapes alone. So every device gives the same bits as the interpreter, except in
// tensor.cu.
#pragma once

#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static __attribute__((device, always_inline)) inline
#define SHARED __attribute__((shared))
#define SYNC __syncthreads()
#define TX __nvvm_read_ptx_sreg_tid_x()
#define TY __nvvm_read_ptx_sreg_tid_y()
#define BX __nvvm_read_ptx_sreg_ctaid_x()
#define BY __nvvm_read_ptx_sreg_ctaid_y()
#define NX __nvvm_read_ptx_sreg_ntid_x()
#define GX __nvvm_read_ptx_sreg_nctaid_x()
#define GY __nvvm_read_ptx_sreg_nctaid_y()

typedef unsigned char u8;
typedef unsigned u32;
typedef int i32;
typedef unsigned long long u64;
typedef float float4 __attribute__((ext_vector_type(4)));

// If the parameter from of a kernel is not 0, the kernel reads the parameter before it from that
// address. Kernels in a graph do so, because a graph has the same arguments in every microbatch.

// EACH iterates over n elements: i begins at the thread's number in the grid, and advances by the
// number of threads.
#define EACH(i, n) for (u64 i = (u64)BX * NX + TX; i < (n); i += (u64)GX * NX)

DEVICE u32 bits(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float value(u32 b) { return __builtin_bit_cast(float, b); }
DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }
DEVICE u32 most(u32 a, u32 b) { return a > b ? a : b; }
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

const float largest = 0x1.fffffep127f, infinite = __builtin_inff();
const u32 infinity = 0x7f800000, sign = 0x80000000;

// exponential returns e^x with a relative error below 2^-22. It returns 0 if e^x is below the
// smallest normal number, and infinity if x is above 88.37. x is split into n·ln 2 + r; e^r is
// computed by its Taylor polynomial of degree seven.
DEVICE float exponential(float x) {
  if (x < -87.33654f) return 0;
  if (x > 88.37f) return infinite;
  float t = fma(x, 0x1.715476p0f, 0x1.8p23f), n = t - 0x1.8p23f;
  float r = fma(n, -0x1.62e4p-1f, x);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040;
  p = fma(p, r, 1.0f / 720);
  p = fma(p, r, 1.0f / 120);
  p = fma(p, r, 1.0f / 24);
  p = fma(p, r, 1.0f / 6);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  return p * value((bits(t) + 127) << 23);
}

// logarithm returns ln x in double precision for a positive, finite, normal x, with a relative
// error of about 2^-51: x = 2^n·m, and ln m = 2·artanh((m-1)/(m+1)) is computed by its series.
DEVICE double logarithm(double x) {
  u64 b = __builtin_bit_cast(u64, x);
  i32 n = (i32)(b >> 52) - 1023;
  double m = __builtin_bit_cast(double, (b & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    n++;
  }
  double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 21;
#pragma unroll
  for (int k = 19; k >= 3; k -= 2) p = p * z + 1.0 / k;
  return n * 0x1.62e42fefa39efp-1 + 2 * (s + s * z * p);
}

// halve sums part[0] to part[threads-1] into part[0] by halves. threads is a power of two.
DEVICE void halve(double *part, u32 threads) {
  SYNC;
#pragma nounroll
  for (u32 k = threads / 2; k > 0; k /= 2) {
    if (TX < k) part[TX] += part[TX + k];
    SYNC;
  }
}
