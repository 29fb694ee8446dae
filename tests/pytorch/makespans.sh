#!/usr/bin/env bash
# Prints simulated and measured makespans of plans in PyTorch, a row for each plan, once with
# hops that cost nothing and once with links on which a message takes 20 ms. Stages sleep, so
# a few cores are enough. It needs root, because every rank has its own network namespace:
#
#   tests/pytorch/makespans.sh
#
# PYTHON names a Python with torch.distributed.pipelining, by default that of .ci/torch.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/torch-$(cat python/torch.txt)/bin/python}
work=$(mktemp -d)
names=()
cleanup() {
  for name in "${names[@]}"; do ip netns del "$name" 2>/dev/null || true; done
  ip link del weirbr 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
go build -o "$work/weir" ./cmd/weir
weir=$work/weir

# Four hosts on a bridge. Each pair has its own traffic class of 219 Mbit/s, including the headers
# of full frames: a message of half a MiB takes 20 ms.
ip link add weirbr type bridge
ip link set weirbr up
for rank in 0 1 2 3; do
  name=weir$$-$rank
  names+=("$name")
  ip netns add "$name"
  ip link add "weirbr$rank" type veth peer name eth0 netns "$name"
  ip link set "weirbr$rank" master weirbr up
  ip -n "$name" addr add "10.78.0.$((rank + 1))/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
done
shape() { # RATE
  local rank peer
  for rank in 0 1 2 3; do
    tc -n "${names[rank]}" qdisc del dev eth0 root 2>/dev/null || true
    [ -n "$1" ] || continue
    tc -n "${names[rank]}" qdisc add dev eth0 root handle 1: htb
    for peer in 1 2 3 4; do
      tc -n "${names[rank]}" class add dev eth0 parent 1: classid "1:$peer" htb rate "$1" burst 16kb cburst 16kb quantum 60000
      tc -n "${names[rank]}" filter add dev eth0 parent 1: protocol ip u32 match ip dst "10.78.0.$peer/32" flowid "1:$peer"
    done
  done
}

# Costs for four stages and for eight: a rank works 100 ms, 100 ms and 70 ms either way. Stage 0 has
# no gradient of an input.
costs() { # STAGES F I W BYTES PER_MIB
  local stage separator=""
  printf '{"schema": 1, "unit": "ms", "per_mib": %d, "stages": [' "$6"
  for ((stage = 0; stage < $1; stage++)); do
    printf '%s{"f": %d, "i": %d, "w": %d, "output": %d, "gradient": %d, "saved": 1048576}' "$separator" "$2" $((stage ? $3 : 0)) "$4" "$5" "$5"
    separator=", "
  done
  echo ']}'
}

measure() { # COSTS PLAN
  local folder rank ranks pids=()
  folder=$(mktemp -d "$work/XXXXXX")
  ranks=$(wc -l < "$work/$2")
  for ((rank = 0; rank < ranks; rank++)); do
    GLOO_SOCKET_IFNAME=eth0 nice -n -20 ip netns exec "${names[rank]}" "$python" tests/pytorch/time_plan.py \
      --costs "$work/$1" --folder "$work/${folder##*/}" --rank "$rank" "$work/$2" &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do wait "${pids[rank]}"; done
  "$python" tests/pytorch/time_plan.py --costs "$work/$1" --folder "$work/${folder##*/}" --summary "$work/$2"
}
row() { # NAME HOPS COSTS PLAN
  local simulated median least
  simulated=$("$weir" sim "$work/$4" --costs "$work/$3" --json | sed -n 's/^  "makespan": \(.*\),/\1/p')
  read -r median least < <(measure "$3" "$4")
  printf '| %s | %s | %s | %s | %s | %+.1f %% |\n' "$1" "$2" "$simulated" "$median" "$least" \
    "$(awk "BEGIN { print 100 * ($least / $simulated - 1) }")"
}

four="--ranks 4 --stages 4 --microbatches 8" eight="--ranks 4 --stages 8 --microbatches 8"
"$weir" plan 1f1b $four --to comms > "$work/1f1b.csv"
"$weir" plan 1f1b $four --to comms --capacity 1 > "$work/1f1b-late.csv"
"$weir" plan 1f1b $four --to compute > "$work/1f1b-compute.csv"
"$weir" plan zb-h1 $four --to comms > "$work/zb-h1.csv"
"$weir" plan interleaved $eight --to comms > "$work/interleaved.csv"
"$weir" plan zb-v $eight --to comms > "$work/zb-v.csv"
echo "| plan | a hop, ms | simulated, ms | measured, median | measured, least | least to simulated |"
echo "|---|---|---|---|---|---|"
for hop in 0 20; do
  bytes=4 per_mib=0
  shape ""
  if [ $hop -gt 0 ]; then
    bytes=524288 per_mib=40
    shape 219mbit
  fi
  costs 4 100 100 70 $bytes $per_mib > "$work/four.json"
  costs 8 50 50 35 $bytes $per_mib > "$work/eight.json"
  row 1f1b $hop four.json 1f1b.csv
  row "1f1b, receives late (\`--capacity 1\`)" $hop four.json 1f1b-late.csv
  row "1f1b, PyTorch's own transfers" $hop four.json 1f1b-compute.csv
  row zb-h1 $hop four.json zb-h1.csv
  row interleaved $hop eight.json interleaved.csv
  row zb-v $hop eight.json zb-v.csv
  "$weir" choose $eight --costs "$work/eight.json" --runtime pytorch -o "$work/best.json" >/dev/null
  "$weir" convert "$work/best.json" --to comms > "$work/best.csv"
  row "$(sed -n 's/^  "name": "\(.*\)",/\1/p' "$work/best.json"), by \`choose --runtime pytorch\`" $hop eight.json best.csv
done
