#!/usr/bin/env bash
# Runs plans in PyTorch under torch.profiler and prints what weir trace makes of the traces: once
# as they are, once with a slow rank, once with a slow link. Stages sleep, so a few cores will
# do. As root, since every rank has a network namespace of its own:
#
#   tests/pytorch/traces.sh
#
# PYTHON names a Python with torch.distributed.pipelining, by default that of .ci/torch. KEEP names a folder
# for the traces.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/torch-$(cat python/torch.txt)/bin/python}
work=$(mktemp -d)
names=()
cleanup() {
  for name in "${names[@]}"; do ip netns del "$name" 2>/dev/null || true; done
  ip link del weirtr 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
go build -o "$work/weir" ./cmd/weir
weir=$work/weir

ip link add weirtr type bridge
ip link set weirtr up
for rank in 0 1 2 3; do
  name=weirtr$$-$rank
  names+=("$name")
  ip netns add "$name"
  ip link add "weirtr$rank" type veth peer name eth0 netns "$name"
  ip link set "weirtr$rank" master weirtr up
  ip -n "$name" addr add "10.79.0.$((rank + 1))/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
done

# Costs of four or eight stages, with messages of half a MiB; one stage may be slower.
costs() { # STAGES F I W SLOW PERCENT
  local stage separator="" percent
  printf '{"schema": 1, "unit": "us", "stages": ['
  for ((stage = 0; stage < $1; stage++)); do
    percent=$((stage == $5 ? $6 : 100))
    printf '%s{"f": %d, "i": %d, "w": %d, "output": 524288}' "$separator" $(($2 * percent * 10)) $((stage ? $3 * percent * 10 : 0)) $(($4 * percent * 10))
    separator=", "
  done
  echo ']}'
}

measure() { # NAME COSTS PLAN
  local rank pids=()
  mkdir "$work/$1"
  for rank in 0 1 2 3; do
    GLOO_SOCKET_IFNAME=eth0 nice -n -20 ip netns exec "${names[rank]}" "$python" tests/pytorch/time_plan.py \
      --costs "$work/$2" --folder "$work/$1" --traces "$work/$1" --rank "$rank" --steps 4 "$work/$3" &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do wait "${pids[rank]}"; done
  rm "$work/$1"/*.json
  echo "== $1"
  "$weir" trace "$work/$1" --no-choose --emit-costs "$work/$1.json" -o "$work/$1.html" | sed -n '3,/^ *rank/p' | grep -v '^$' | grep -v '^ *rank'
}

"$weir" plan 1f1b --ranks 4 --stages 4 --microbatches 8 --to comms > "$work/1f1b.csv"
"$weir" plan zb-h1 --ranks 4 --stages 4 --microbatches 8 --to comms > "$work/zb-h1.csv"
"$weir" plan zb-v --ranks 4 --stages 8 --microbatches 8 --to comms > "$work/zb-v.csv"
costs 4 100 100 70 -1 100 > "$work/four.json"
costs 8 50 50 35 -1 100 > "$work/eight.json"
costs 4 100 100 70 2 160 > "$work/slow.json"
measure 1f1b four.json 1f1b.csv
measure zb-h1 four.json zb-h1.csv
measure zb-v eight.json zb-v.csv
measure slow-rank-2 slow.json zb-h1.csv
# What rank 1 sends to rank 2 goes at 110 Mbit/s: 40 ms for a message.
tc -n "${names[1]}" qdisc add dev eth0 root handle 1: htb
tc -n "${names[1]}" class add dev eth0 parent 1: classid 1:1 htb rate 110mbit burst 16kb cburst 16kb quantum 60000
tc -n "${names[1]}" filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.79.0.3/32 flowid 1:1
measure slow-link-1-to-2 four.json zb-h1.csv
[ -z "${KEEP:-}" ] || cp -r "$work"/*/ "$work"/*.html "$KEEP"
