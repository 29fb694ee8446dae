#!/usr/bin/env bash
# Builds, vets and links everything with the tag cuda, on any machine with Debian's tools and
# without a GPU: build.sh [FOLDER [go build arguments]]. Headers and the linker's stub of libcuda
# are unpacked once to FOLDER (.cuda in the module's folder by default), which takes a download of
# 934 MB from the archive that apt-get uses here, or from MIRROR; 20 MB of it stay. Nothing is
# installed. If CUDA_HOME is set, its folders include and lib64/stubs are used instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath -m "${1:-.cuda}")
shift || true
include=${CUDA_HOME:-$folder/usr}/include
stubs=${CUDA_HOME:+$CUDA_HOME/lib64/stubs}
stubs=${stubs:-$folder/usr/lib/x86_64-linux-gnu/stubs}

if [ ! -e "$include/cuda.h" ]; then
  mkdir -p "$folder"/apt/lists/partial "$folder"/apt/cache/archives/partial
  mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p)}
  [ "$mirror" ] || { echo "apt-get knows no archive of Debian (after apt-get update): name one in MIRROR, or a CUDA in CUDA_HOME" >&2; exit 1; }
  for suite in bookworm trixie; do echo "deb $mirror $suite main contrib non-free"; done >"$folder/apt/sources.list"
  cat >"$folder/apt/apt.conf" <<EOF
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$folder/apt/lists";
Dir::Cache "$folder/apt/cache";
EOF
  export APT_CONFIG=$folder/apt/apt.conf
  apt-get update
  (cd "$folder" && apt-get download nvidia-cuda-dev=12.4.127~12.4.1-2)
  dpkg-deb --fsys-tarfile "$folder"/nvidia-cuda-dev_*.deb |
    tar x -C "$folder" --wildcards './usr/include/*' './usr/lib/x86_64-linux-gnu/stubs/*'
  rm -r "$folder"/nvidia-cuda-dev_*.deb "$folder/apt"
fi

export CGO_CFLAGS=-I$include CGO_LDFLAGS=-L$stubs CGO_ENABLED=1
go vet -tags cuda ./kernels/cuda/... ./examples/train
go build -tags cuda ./...
mkdir -p "$folder/bin"
go build -tags cuda -o "$folder/bin/train" "$@" ./examples/train
go test -tags cuda -c -o "$folder/bin/libcuda.test" ./kernels/cuda/libcuda
echo "built: $folder/bin/train and $folder/bin/libcuda.test; both need a GPU to start"
