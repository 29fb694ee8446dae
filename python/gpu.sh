#!/usr/bin/env bash
# Runs on a machine with GPUs what other machines test by doubles: python/gpu.sh [guard] [price] [schedule] [runner] [profile]
# It takes pytest, the command weir in PATH, and the PyTorch of PYTHON (python3). A pipeline has a rank for each GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
[ "$gpus" -gt 0 ] || { echo "skipped, PyTorch sees no GPU here"; exit 0; }
"$python" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name(), torch.cuda.device_count())'
ranks() { "$python" -m torch.distributed.run --standalone --nproc-per-node "$gpus" "$@"; }

guard() { WEIR_DEVICE=cuda "$python" -m pytest -q -p no:cacheprovider -p no:logging python/tests/test_{detached,guard,healthy,leaks,loops}.py; }
price() { WEIR_DEVICE=cuda "$python" python/tests/price.py 4096; }
schedule() { ranks python/tests/pipeline.py schedule 1f1b --device cuda && ranks python/tests/pipeline.py schedule zb-v --device cuda; }
runner() { ranks python/tests/pipeline.py runner 1f1b --device cuda && ranks python/tests/pipeline.py runner zb-v --device cuda; }
profile() { "$python" docs/profile/compare.py --device cuda; }

failed=()
[ $# -gt 0 ] || set -- guard price schedule runner profile
for part; do
  echo "== $part"
  "$part" || failed+=("$part")
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
