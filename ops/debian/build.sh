#!/usr/bin/env bash
# Build the Debian package of the hub: `make deb`. It has Python's libraries in an environment of its own under /opt/iothub, from wheels, and works
# with the python3 of the release on which it is built: a package for Debian 12 is built on Debian 12.
#   build.sh FOLDER [WHEEL]   PYTHON: the interpreter on the target (default /usr/bin/python3). Without WHEEL, one is built.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=ops/debian
target=$1
python=${PYTHON:-/usr/bin/python3}
mkdir -p "$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=${2:-}
if [ -z "$wheel" ]; then
    bash ops/dist.sh "$work/dist"
    wheel=$(ls "$work"/dist/iothub-*.whl)
fi
version=$(basename "$wheel" | cut -d- -f2)
next_minor() { "$python" -c 'import sys; print(f"3.{sys.version_info.minor + 1}")'; }
minor=$("$python" -c 'import sys; print(f"3.{sys.version_info.minor}")')
root=$work/root
opt=$root/opt/iothub

echo "installing the hub and its libraries into the package ..."
install -d "$root"
"$python" -m venv --without-pip "$opt"
.venv/bin/python -m pip --python "$opt/bin/python3" install --quiet --no-compile --disable-pip-version-check \
    "$wheel[admin,redis,kafka,hbase,mysql,postgresql]"
# Scripts and settings name the place where they will be, not where they were made.
ln -sf "$python" "$opt/bin/python3"
find "$opt/bin" -maxdepth 1 -type f \( -iname 'activate*' -delete -o -exec sed -i '1s|^#!.*python.*|#!/opt/iothub/bin/python3|' {} + \)
sed -i '/^command = /d' "$opt/pyvenv.cfg"
find "$root" -name __pycache__ -type d -prune -exec rm -rf {} +
find "$opt/lib" -type f -name '*.so*' -exec strip --strip-unneeded {} +
libraries=$("$python" "$here/libraries.py" "$opt/lib")

install -D -m 0755 "$here/iothub" "$root/usr/bin/iothub"
for unit in ops/systemd/*.service ops/schedules/iothub-jobs.service ops/schedules/iothub-jobs.timer; do
    install -D -m 0644 "$unit" "$root/lib/systemd/system/$(basename "$unit")"
done
install -d "$root/etc/iothub" "$root/usr/share/doc/iothub" "$root/DEBIAN"
"$opt/bin/python3" -c 'from iothub.config.profiles import EMBEDDED; print(EMBEDDED.config, end="")' >"$root/etc/iothub/iothub.toml"
debian_version=${version/.dev/~dev}
made_at=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
doc=$root/usr/share/doc/iothub
install -m 0644 "$here/copyright" README.md "$doc/"
sed -e "s/@VERSION@/$debian_version/; s/@DATE@/$(LC_ALL=C date -u -R -d "@$made_at")/" "$here/changelog" | gzip -9 -n >"$doc/changelog.gz"
gzip -9 -n <CHANGELOG.md >"$doc/NEWS.gz"
install -D -m 0644 "$here/overrides" "$root/usr/share/lintian/overrides/iothub"
install -d "$root/usr/share/man/man1" && gzip -9 -n <"$here/iothub.1" >"$root/usr/share/man/man1/iothub.1.gz"
completion() { install -d "$(dirname "$2")" && "$opt/bin/python3" -m iothub.cli completion "$1" >"$2"; }
completion bash "$root/usr/share/bash-completion/completions/iothub"
completion zsh "$root/usr/share/zsh/vendor-completions/_iothub"
completion fish "$root/usr/share/fish/vendor_completions.d/iothub.fish"
find "$root" -name __pycache__ -type d -prune -exec rm -rf {} +
chmod -R u+rwX,go+rX,go-w "$root"
find "$opt/lib" -type f -name '*.so*' -exec chmod a-x {} +

sed -e "s/@VERSION@/$debian_version/; s/@LIBRARIES@/$libraries/; s/@ARCHITECTURE@/$(dpkg --print-architecture)/; s/@PYTHON@/$minor/; s/@NEXT@/$(next_minor)/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" "$here/control" >"$root/DEBIAN/control"
install -m 0644 "$here/conffiles" "$root/DEBIAN/conffiles"
install -m 0755 "$here"/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz --build "$root" "$target" >"$work/log" || { cat "$work/log" >&2; exit 1; }
ls "$target"/iothub_"${debian_version}"_*.deb
