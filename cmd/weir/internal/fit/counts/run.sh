#!/usr/bin/env bash
# Compares counts of parameters with transformers and megatron-core, in a virtual environment
# outside the tree, which stays for the next run. PyTorch is that of a sibling environment if
# there is one. Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")"
home=${XDG_CACHE_HOME:-$HOME/.cache}/weir/fit
if ! [ -x "$home/bin/python" ]; then
  torch=$(ls -d "${home%/*}"/torch-*/bin/python 2>/dev/null | sort -V | tail -1)
  "${torch:-python3}" -m venv "$home"
  if [ -n "$torch" ]; then
    "$torch" -c 'import site; print(site.getsitepackages()[0])' > "$("$home/bin/python" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
  fi
fi
install=("$home/bin/pip" install --quiet --disable-pip-version-check)
"$home/bin/python" -c 'import torch' 2>/dev/null || "${install[@]}" torch
"${install[@]}" transformers==5.24.0 einops numpy packaging
# megatron-core asks for Python 3.12; megatron_counts.py adds what it uses of that version.
"${install[@]}" --no-deps --ignore-requires-python megatron-core==0.19.2
PYTHON=$home/bin/python go test -count=1 -timeout 2h -v . "$@"
