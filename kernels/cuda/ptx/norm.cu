#include "common.h"

// norm and norm_grad run a block of 128 threads for each row.
const u32 threads = 128;

KERNEL norm(float *y, float *means, float *rstds, const float *x, const float *gamma, const float *beta, u32 cols) {
  SHARED double part[threads];
  const float *row = x + (u64)BX * cols;
  double sum = 0;
  for (u32 j = TX; j < cols; j += threads) sum += row[j];
  part[TX] = sum;
  halve(part, threads);
  float mean = (float)(part[0] / cols);
  SYNC;
  sum = 0;
  for (u32 j = TX; j < cols; j += threads) {
    double d = (double)row[j] - mean;
    sum += d * d;
  }
  part[TX] = sum;
  halve(part, threads);
  float rstd = (float)(1 / __builtin_sqrt(part[0] / cols + 1e-5));
  for (u32 j = TX; j < cols; j += threads) y[(u64)BX * cols + j] = (row[j] - mean) * rstd * gamma[j] + beta[j];
  if (TX == 0) {
    means[BX] = mean;
    rstds[BX] = rstd;
  }
}

// norm_grad sets dx to rstd·(g - mean(g) - n·mean(g·n)) with g = dy·gamma and n = (x - mean)·rstd.
KERNEL norm_grad(float *dx, const float *dy, const float *x, const float *gamma, const float *means, const float *rstds, u32 cols) {
  SHARED double part[threads], normal[threads];
  float mean = means[BX], rstd = rstds[BX];
  u64 at = (u64)BX * cols;
  double sum = 0, sumN = 0;
  for (u32 j = TX; j < cols; j += threads) {
    float g = dy[at + j] * gamma[j];
    sum += g;
    sumN += g * ((x[at + j] - mean) * rstd);
  }
  part[TX] = sum;
  normal[TX] = sumN;
  halve(part, threads);
  halve(normal, threads);
  float meanG = (float)(part[0] / cols), meanGN = (float)(normal[0] / cols);
  for (u32 j = TX; j < cols; j += threads)
    dx[at + j] = rstd * (dy[at + j] * gamma[j] - meanG - (x[at + j] - mean) * rstd * meanGN);
}

// norm_gains adds rows in ascending order, with a thread for each column.
KERNEL norm_gains(float *dgamma, float *dbeta, const float *dy, const float *x, const float *means, const float *rstds, u32 rows,
                  u32 cols, u32 accumulateGamma, u32 accumulateBeta) {
  EACH(j, cols) {
    float gain = dgamma && accumulateGamma ? dgamma[j] : 0, shift = dbeta && accumulateBeta ? dbeta[j] : 0;
    for (u32 r = 0; r < rows; r++) {
      u64 at = (u64)r * cols + j;
      float d = dy[at];
      if (dgamma) gain += d * ((x[at] - means[r]) * rstds[r]);
      shift += d;
    }
    if (dgamma) dgamma[j] = gain;
    if (dbeta) dbeta[j] = shift;
  }
}
