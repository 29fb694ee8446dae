#!/usr/bin/env bash
# Runs on a machine with GPUs what other machines test by doubles: python/gpu.sh [guard] [schedule] [runner] [profile]
# It takes pytest, the command weir in PATH, and the PyTorch of PYTHON (python3). A pipeline has a rank for each GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
[ "$gpus" -gt 0 ] || { echo "skipped, PyTorch sees no GPU here"; exit 0; }
"$python" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name(), torch.cuda.device_count())'
ranks() { "$python" -m torch.distributed.run --nproc-per-node "$gpus" --master-port 0 "$@"; }

guard() {
  WEIR_DEVICE=cuda "$python" -m pytest -q -p no:cacheprovider -p no:logging python/tests/test_{detached,guard,healthy,leaks,loops}.py
  WEIR_DEVICE=cuda "$python" python/tests/price.py 4096
}
schedule() { for plan in 1f1b zb-v; do ranks python/tests/pipeline.py schedule $plan --device cuda; done; }
runner() { for plan in 1f1b zb-v; do ranks python/tests/pipeline.py runner $plan --device cuda; done; }
profile() { "$python" docs/profile/compare.py --device cuda; }

for part in "${@:-guard schedule runner profile}"; do
  for one in $part; do echo "== $one"; $one; done
done
