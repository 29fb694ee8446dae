#!/usr/bin/env bash
# Sets up the peers that `go run ./tests/bench -all` measures: PyTorch 2.6 of Debian trixie with
# OpenBLAS (its OpenMP build, and the pthread build), MKL if Debian has it, and g++ for
# torch.compile (libtorch-dev has the headers that its output includes), in a separate folder. It
# needs root on a Debian with debootstrap:
#
#	tests/bench/peers.sh [FOLDER]    /opt/trixie if not given; 2 GB from the
#	archive that apt-get uses here, or MIRROR
set -euo pipefail
root=${1:-/opt/trixie}
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p)}
[ "$mirror" ] || { echo "apt-get knows no archive of Debian (after apt-get update): name one in MIRROR" >&2; exit 1; }
command -v debootstrap >/dev/null || apt-get install -y -q debootstrap
[ -e "$root/usr/bin/apt-get" ] || debootstrap --variant=minbase --components=main,contrib,non-free trixie "$root" "$mirror"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get install -y -q --no-install-recommends \
	python3-torch libopenblas0-openmp libopenblas0-pthread gcc g++ libc6-dev libgomp1 python3-dev python3-setuptools libtorch-dev
inside apt-get install -y -q --no-install-recommends libmkl-rt libmkl-intel-thread libmkl-gnu-thread libmkl-core ||
	echo "no MKL among the packages: it is left out"
# PyTorch loads any libblas.so.3 and liblapack.so.3.
mkdir -p "$root/opt/mkl"
for name in libblas.so.3 liblapack.so.3; do ln -sf /usr/lib/x86_64-linux-gnu/libmkl_rt.so "$root/opt/mkl/$name"; done
# torch.compile and the list of loaded libraries read /proc. The mount does not survive a restart.
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
[ -e "$root/dev/shm" ] || mkdir -p "$root/dev/shm"
inside python3 -c 'import torch; print("PyTorch", torch.__version__)'
