#!/usr/bin/env bash
# Trains on two hosts that are network namespaces, joined at 1 Gbit/s, and then takes the
# network down. As root: docs/processes/netns.sh TRAIN WEIR, the two programs.
set -euo pipefail
train=$(realpath "$1") weir=$(realpath "$2")
folder=$(mktemp -d)
cleanup() { ip netns del weir0 2>/dev/null || true; ip netns del weir1 2>/dev/null || true; rm -rf "$folder"; }
trap cleanup EXIT
ip netns add weir0
ip netns add weir1
ip link add veth0 netns weir0 type veth peer name veth1 netns weir1
for host in 0 1; do
  ip -n weir$host addr add 10.77.0.$((host + 1))/24 dev veth$host
  ip -n weir$host link set veth$host up
  ip netns exec weir$host tc qdisc add dev veth$host root tbf rate 1gbit burst 256kb latency 50ms
done
cd "$folder"
"$weir" launch certs certs >/dev/null
export WEIR_TOKEN=secret
flags="-steps 40 -microbatches 16 -width 128 -layers 4 -plan zb-v -ranks 2"
host() { # HOST FLAGS...
  local host=$1
  shift
  ip netns exec weir"$host" "$train" $flags -transport tcp:10.77.0.1:29500 -tls certs -processes 2 -process "$host" "$@"
}

echo "== in one process"
"$train" $flags -run one -json one.json >/dev/null
grep weights_sha256 one.json
echo "== on two hosts"
host 1 >/dev/null &
host 0 -run two -json two.json >/dev/null
wait $!
grep weights_sha256 two.json
cmp <(grep weights_sha256 one.json) <(grep weights_sha256 two.json)
ip -n weir0 -s link show veth0 | awk '/TX:/ { getline; print "bytes sent by host 0:", $1 }'

echo "== the network goes down"
host 1 -steps 100000 >/dev/null 2>err1 &
second=$!
host 0 -steps 100000 -run three >out 2>err0 &
first=$!
until grep -q step out; do sleep 0.1; done
ip -n weir0 link set veth0 down
down=$(date +%s.%N)
for process in $first $second; do
  status=0
  wait "$process" || status=$?
  awk -v a="$down" -v b="$(date +%s.%N)" -v s=$status 'BEGIN { printf "status %d after %.1f s\n", s, b - a }'
done
tail -qn 1 err0 err1
