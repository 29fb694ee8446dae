#!/usr/bin/env bash
# Measures kernels/cuda on a machine with an NVIDIA GPU and its driver, and writes a section of
# Markdown for docs/dev/gpu.md: gpu.sh [FOLDER [FILE]]. FOLDER has train and libcuda.test, which build.sh
# made on any machine (.cuda/bin by default); FILE is - for standard output. It needs no
# network, no Go and no other rights. It reports missing parts and continues without them. It
# takes half an hour at most; SMALL=1 takes minutes, to see whether all of it works.
# shellcheck disable=SC2016 # backquotes are Markdown's
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$(realpath -m "${1:-.cuda/bin}")
file=${2:--}
[ "$file" = - ] || exec >"$file"
exec 3>&1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$SECONDS

# The model, the numbers of microbatches, and the number of steps for each.
width=1024 layers=12 heads=16 sequence=256 counts=(64 256 1024 4096) peers=(64 256) few=64
if [ "${SMALL:-}" ]; then width=64 layers=2 heads=4 sequence=64 counts=(4 16) peers=(4 16) few=4; fi

section() { printf '\n### %s\n\n' "$1"; }
missing() { printf '%s is not on this machine: left out.\n' "$1"; }
have() { command -v "$1" >/dev/null; }
left() { [ $((SECONDS - began)) -lt 1680 ] || { echo "The half hour is over: left out."; return 1; }; }
# limited runs a command for a maximum number of seconds, and reports its status and errors if it fails.
limited() {
  local limit=$1 status=0
  shift
  timeout "$limit" "$@" 2>"$work/error" || status=$?
  [ "$status" = 0 ] || printf '\nIt ended with status %s%s: `%s`\n\n```\n%s\n```\n' "$status" \
    "$([ "$status" = 124 ] && echo ", after $limit s")" "$*" "$(tail -n 5 "$work/error")" >&3
  return "$status"
}
# field prints a number of a summary in JSON: the first with the name at the depth of the run itself.
field() { sed -n "s/^  \"$1\": \\(.*[^,]\\),\\{0,1\\}$/\\1/p" "$work/summary.json" | head -n 1; }
# seconds prints the duration of the last step, from its first microbatch until the device is done.
seconds() { tail -n 1 "$work/run/losses.csv" | cut -d, -f6; }
# train trains on the texts of this repository.
train() {
  local microbatches=$1 steps=$2
  shift 2
  rm -rf "$work/summary.json" "$work/run"
  limited 600 "$bin/train" -device cuda -data docs -width $width -layers $layers -heads $heads -seq $sequence -tied -evaluate 0 \
    -microbatches "$microbatches" -steps "$steps" -json "$work/summary.json" -run "$work/run" "$@" >"$work/said"
}

printf '## Measured\n\nBy `kernels/cuda/gpu.sh` on %s, commit %s.\n' "$(date -u +%F)" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
if have nvidia-smi; then
  printf '%s; ' "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sort | uniq -c | sed 's/^ *//')"
else
  missing nvidia-smi
fi
printf '%s cores.\n' "$(nproc)"
for program in train libcuda.test; do
  [ -x "$bin/$program" ] || { echo "There is no $bin/$program: run kernels/cuda/build.sh where there is Go, and carry it here."; exit 1; }
done

section 'kernels/kerneltest on the GPU'
echo '`libcuda.test -test.run Conformance -test.v`'
limited 300 "$bin/libcuda.test" -test.run Conformance -test.v >"$work/said"
printf '\n%s cases passed, %s failed.\n' "$(grep -c '^    --- PASS' "$work/said")" "$(grep -c '^    --- FAIL' "$work/said")"
grep -A 20 -E '^ *(--- FAIL|[a-z_]+_test.go:)' "$work/said" | head -n 60

section 'Products'
left && limited 120 "$bin/libcuda.test" -test.run Products | grep -v -E '^(PASS|ok)'

section 'Memory and time by microbatches'
echo "\`train -device cuda -data docs -width $width -layers $layers -heads $heads -seq $sequence -tied -microbatches M\`; nvidia-smi looks twice a second, cuMemGetInfo ten times, from a process beside it, from the end of the first step on."
echo
echo '| | M | step s | peak bytes | planned | growth | nvidia-smi MiB | cuMemGetInfo |'
echo '|---|---|---|---|---|---|---|---|'
for microbatches in "${counts[@]}"; do
  left || break
  rm -rf "$work/run" "$work/used" "$work/watched"
  touch "$work/running"
  (
    until [ -s "$work/run/losses.csv.partial" ] && [ "$(wc -l <"$work/run/losses.csv.partial")" -ge 2 ] || [ ! -e "$work/running" ]; do sleep 0.2; done
    [ -e "$work/running" ] || exit
    "$bin/libcuda.test" -test.run Watch -watch "$work/running" >"$work/watched" 2>&1 &
    watcher=$!
    sleep 2 # until the context of that process is there
    while [ -e "$work/running" ]; do
      have nvidia-smi && nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0
      sleep 0.5
    done | sort -n | sed -n '1p;$p' | paste -sd ' ' >"$work/used"
    wait "$watcher"
  ) &
  observer=$!
  train "$microbatches" 2
  well=$?
  rm "$work/running"
  wait "$observer"
  [ "$well" = 0 ] && echo "| float32 | $microbatches | $(seconds) | $(field peak_bytes) | $(field model_bytes) + $(field planned_bytes) | $(field growth_per_microbatch_bytes) | $(sed 's/ / to /' "$work/used" 2>/dev/null) | $(sed -n 's/^free by cuMemGetInfo: //p' "$work/watched" 2>/dev/null) |"
done

section 'Settings'
echo "M = $few; by \`-products\` and by how kernels are launched."
echo
echo '| setting | step s | peak bytes | loss |'
echo '|---|---|---|---|'
settings=$("$bin/train" -help 2>&1)
for setting in '-products float32' '-products bfloat16' '-plain-launches' '-fp8 mxfp8' '-products cublas' '-products cublas-bfloat16'; do # what may be missing breaks the table at its end
  left || break
  if ! grep -q -e "^  ${setting%% *}\b" <<<"$settings"; then
    echo "| \`$setting\` | this program has no such setting | | |"
    continue
  fi
  # shellcheck disable=SC2086 # two words
  train "$few" 3 $setting && echo "| \`$setting\` | $(seconds) | $(field peak_bytes) | $(field loss_train) |"
done

section 'PyTorch'
if ! have python3 || ! python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  missing 'PyTorch for this GPU'
else
  echo '`kernels/cuda/peer.py`: the same model, a microbatch after the other.'
  echo
  echo '| | M | step s | bytes | |'
  echo '|---|---|---|---|---|'
  for precision in float32 bfloat16; do
    left && limited 180 python3 kernels/cuda/peer.py $width $layers $heads $sequence $precision 3 "${peers[@]}"
  done
fi

section 'Pages released and restored'
left && limited 120 "$bin/libcuda.test" -test.run Refit | grep -v -E '^(PASS|ok)'

section 'From GPU to GPU'
if left; then
  limited 60 "$bin/libcuda.test" -test.run Peers -test.v >"$work/said"
  grep -E '^256 MiB|SKIP|FAIL|no such' "$work/said"
fi

section 'compute-sanitizer'
if ! have compute-sanitizer; then
  missing compute-sanitizer
else
  for tool in memcheck racecheck initcheck synccheck; do
    left || break
    printf '%s: ' "$tool"
    limited 150 compute-sanitizer --tool $tool "$bin/libcuda.test" -test.run 'Conformance/^(matmul|rows|layernorm|gelu|attention|elementwise|embed|head|adamw|quantize|dequantize|quantized_matmul|dropout|normal)' >"$work/said"
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$work/said" || tail -n 3 "$work/said"
  done
fi

printf '\n%s s in all.\n' $((SECONDS - began))
