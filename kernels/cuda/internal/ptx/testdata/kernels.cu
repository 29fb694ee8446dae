// Kernels for the tests of package ptx; kernels.ptx is what clang makes of them
// (kernels/cuda/ptx/generate.sh has the command).
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
#define TX __nvvm_read_ptx_sreg_tid_x()
#define TY __nvvm_read_ptx_sreg_tid_y()
#define BX __nvvm_read_ptx_sreg_ctaid_x()
#define BY __nvvm_read_ptx_sreg_ctaid_y()
#define NX __nvvm_read_ptx_sreg_ntid_x()

// y = a·x + y, a thread for each element.
KERNEL axpy(float *y, const float *x, float a, unsigned n) {
  unsigned i = BX * NX + TX;
  if (i < n) y[i] = __builtin_fmaf(a, x[i], y[i]);
}

// c (n×n) = a·b by tiles of 8×8 in shared memory.
KERNEL product(float *c, const float *a, const float *b, unsigned n) {
  SHARED float s[8][8], t[8][8];
  unsigned row = BY * 8 + TY, col = BX * 8 + TX;
  float sum = 0;
  for (unsigned k = 0; k < n; k += 8) {
    s[TY][TX] = row < n && k + TX < n ? a[row * n + k + TX] : 0;
    t[TY][TX] = k + TY < n && col < n ? b[(k + TY) * n + col] : 0;
    __syncthreads();
#pragma nounroll
    for (unsigned l = 0; l < 8; l++) sum = __builtin_fmaf(s[TY][l], t[l][TX], sum);
    __syncthreads();
  }
  if (row < n && col < n) c[row * n + col] = sum;
}

// sums[block] = Σ x of its row of n elements, by halves in dynamic shared memory.
KERNEL rows(double *sums, const float *x, unsigned n) {
  extern SHARED double part[];
  double sum = 0;
  for (unsigned i = TX; i < n; i += NX) sum += x[BX * n + i];
  part[TX] = sum;
  __syncthreads();
#pragma nounroll
  for (unsigned k = NX / 2; k > 0; k /= 2) {
    if (TX < k) part[TX] += part[TX + k];
    __syncthreads();
  }
  if (TX == 0) sums[BX] = part[0];
}
