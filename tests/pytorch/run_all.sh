#!/usr/bin/env bash
# Makes a plan of each kind that PyTorch's runtime knows, loads it into PyTorch and
# runs it: once with the transfers placed by weir, once with the transfers placed by
# PyTorch. PYTHON names a Python with torch.distributed.pipelining.
#
#   apt-get install python3-torch    # 2.6 or later: Debian 13
#   tests/pytorch/run_all.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
plans=$(mktemp -d)
trap 'rm -rf "$plans"' EXIT
go build -o "$plans/weir" ./cmd/weir

microbatches=8
make_plans() { # NAME RANKS STAGES [FLAGS]
  for form in compute comms; do
    "$plans/weir" plan "$1" --ranks "$2" --stages "$3" --microbatches $microbatches --to $form "${@:4}" \
      > "$plans/$form/$1-$2-$3.csv"
  done
}
mkdir "$plans/compute" "$plans/comms"
for name in gpipe 1f1b depth-first zb-h1 zb-h2; do make_plans $name 2 2; make_plans $name 4 4; done
for name in interleaved breadth-first zb1p zb-v v-half v-min grouped-interleave; do make_plans $name 2 4; done
for name in zb-v v-half v-min; do make_plans $name 4 8; done
make_plans interleaved 3 6
# An order that no rule gives: the result of a search for these costs under a limit of memory.
"$plans/weir" choose --ranks 4 --stages 8 --microbatches $microbatches --f 10 --i 12 --w 7 --comm 1 --cap 3 -o "$plans/searched.json" >/dev/null
for form in compute comms; do "$plans/weir" convert "$plans/searched.json" --to $form > "$plans/$form/searched-4-8.csv"; done

status=0
"$python" tests/pytorch/run_plan.py "$plans"/comms/*.csv || status=1
"$python" tests/pytorch/run_plan.py "$plans"/compute/*.csv || status=1
exit $status
