#!/usr/bin/env bash
# Cross-compile the wheel for arm64 on another Debian machine: `make dist-arm64`. It is for the Python of this Debian release, which .venv must have, too.
#   dist_arm64.sh FOLDER [ROOT]   ROOT: where the arm64 files of Debian go, Python among them; without it they are deleted again
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=${2:-$work/root}
machine=aarch64-linux-gnu
for command in "$machine-gcc:gcc-aarch64-linux-gnu libc6-dev-arm64-cross" mmdebstrap:mmdebstrap arch-test:arch-test; do
    command -v "${command%%:*}" >/dev/null || { echo "dist-arm64: ${command%%:*} is missing; run 'apt-get install ${command#*:}'" >&2; exit 1; }
done
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
python=$(.venv/bin/python -c 'import sys; print(f"python3.{sys.version_info.minor}")')
if [ ! -d "$root/usr" ]; then
    echo "fetching $python of Debian $suite for arm64 ..."
    mmdebstrap --architectures=arm64 --variant=extract --include="lib$python-dev,$python-venv" "$suite" "$root" 2>"$work/log" ||
        { tail -n 5 "$work/log" >&2; echo "dist-arm64: Debian $suite may have another Python than .venv ($python); make it anew with 'make install PYTHON=/usr/bin/python3'" >&2; exit 1; }
fi
mkdir "$work/sysconfig"
cp "$root/usr/lib/$python/"_sysconfigdata__"$machine.py" "$work/sysconfig/"
export PYTHONPATH=$work/sysconfig _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__$machine _PYTHON_HOST_PLATFORM=linux-aarch64
export CC="$machine-gcc" LDSHARED="$machine-gcc -shared" CFLAGS="-I$root/usr/include/$python -I$root/usr/include"
bash ops/dist.sh "$target"
