#!/usr/bin/env bash
# Build the programs that come as Go modules, at pinned versions, into a folder: helm (a minute), kubeconform and promtool (some minutes). What is there stays.
set -euo pipefail
target=$(mkdir -p "$1" && cd "$1" && pwd)
build() {  # build NAME MODULE@VERSION
    [ -x "$target/$1" ] && return
    echo "building $1 (${2##*@}) ..."
    work=$(mktemp -d)
    (cd "$work" && go mod init tools && go get "$2" && go build -o "$target/$1" "${2%@*}") >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
    rm -rf "$work"
}
build helm helm.sh/helm/v3/cmd/helm@v3.22.0
build kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
build promtool github.com/prometheus/prometheus/cmd/promtool@v0.301.0
