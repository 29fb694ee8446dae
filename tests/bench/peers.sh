#!/usr/bin/env bash
# Sets up the peers that `go run ./tests/bench -all` measures: PyTorch 2.15, with its MKL and oneDNN,
# and OpenBLAS, both from PyPI, in a virtual environment. torch.compile also needs g++ and the headers
# of Python (python3-dev).
#
#	tests/bench/peers.sh [FOLDER]    /opt/weir-peers if not given; 6 GB
set -euo pipefail
root=${1:-/opt/weir-peers}
python3 -m venv "$root"
"$root/bin/pip" install --quiet torch==2.15.0 setuptools scipy-openblas32==0.3.34.481.3
"$root/bin/python" -c 'import torch; print("PyTorch", torch.__version__)'
