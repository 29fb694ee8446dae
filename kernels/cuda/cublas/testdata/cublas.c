// The functions of cuBLAS that package cublas calls, over memory of the host. They refuse the
// calls that cuBLAS would refuse, and calls that the package must not make.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct handle { void *stream, *workspace; };

int cublasCreate_v2(struct handle **h) { *h = calloc(1, sizeof **h); return 0; }
int cublasDestroy_v2(struct handle *h) { free(h); return 0; }

int cublasSetStream_v2(struct handle *h, void *stream) {
  h->stream = stream;
  h->workspace = 0;
  return 0;
}

int cublasSetWorkspace_v2(struct handle *h, void *workspace, size_t bytes) {
  if ((uintptr_t)workspace % 256 || bytes < 4096) return 7;
  h->workspace = workspace;
  return 0;
}

static float rounded(float x, int half) {
  uint32_t b;
  memcpy(&b, &x, 4);
  if (half) b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000;
  memcpy(&x, &b, 4);
  return x;
}

// C = alpha·op(A)·op(B) + beta·C by columns; op 0 is the identity, 1 the transpose.
int cublasGemmEx(struct handle *h, int opA, int opB, int m, int n, int k, const float *alpha, const float *a, int typeA, int lda,
                 const float *b, int typeB, int ldb, const float *beta, float *c, int typeC, int ldc, int compute, int algorithm) {
  if (!h->stream || !h->workspace) return 1;
  if (typeA || typeB || typeC || algorithm != -1 || (compute != 69 && compute != 75)) return 15;
  if (m < 1 || n < 1 || k < 1 || lda < (opA ? k : m) || ldb < (opB ? n : k) || ldc < m) return 7;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int l = 0; l < k; l++)
        sum += rounded(opA ? a[l + (size_t)i * lda] : a[i + (size_t)l * lda], compute == 75) *
               rounded(opB ? b[j + (size_t)l * ldb] : b[l + (size_t)j * ldb], compute == 75);
      c[i + (size_t)j * ldc] = *alpha * sum + (*beta ? *beta * c[i + (size_t)j * ldc] : 0);
    }
  return 0;
}
