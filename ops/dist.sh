#!/usr/bin/env bash
# Build the sdist, and the wheel from that sdist, into a folder. Built from a copy of what git tracks: nothing else gets in, nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-dist}
mkdir -p "$target"
target=$(cd "$target" && pwd)
python=$PWD/.venv/bin/python
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy"
"$python" -m pip install --quiet --disable-pip-version-check 'build>=1.2,<2'
echo "building sdist and wheel ..."
(cd "$copy" && "$python" -m build --no-isolation --outdir "$target" . >"$copy/build.log" 2>&1) || { tail -n 30 "$copy/build.log" >&2; exit 1; }
ls "$target"/iothub-*
