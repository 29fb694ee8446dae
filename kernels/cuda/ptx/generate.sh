#!/usr/bin/env bash
# Makes the .ptx beside each .cu, and hashes.txt. It needs clang 19 of Debian bookworm
# (packages clang-19 libclang-cpp19 libllvm19 libclang-common-19-dev libz3-4, main), and nothing
# from NVIDIA. CLANG is the compiler's path if it is not clang-19.
set -euo pipefail
cd "$(dirname "$0")"
compile() {
  "${CLANG:-clang-19}" -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib -nogpulib \
    -Xclang -target-feature -Xclang +ptx70 -O2 -ffp-contract=off -fno-jump-tables -Werror -Wno-unknown-cuda-version -S "$1" -o "${1%.cu}.ptx"
}
for source in *.cu ../internal/ptx/testdata/*.cu; do compile "$source"; done
sha256sum ./*.cu ./*.h ./*.ptx | sed 's|\./||' > hashes.txt
