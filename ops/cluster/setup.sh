#!/bin/sh
# Make the data directories of the hubs 1 to COUNT: settings, accounts, the key of their secrets, certificates of links.
# Repeating it changes nothing that is there; after an interruption it goes on.
#   setup.sh SETTINGS ACCOUNTS-URL AUTHORITY HUBS COUNT
# AUTHORITY: the directory of the authority of links, which no hub needs. HUBS: data directory N is HUBS/hub-N.
set -eu
umask 077
settings=$1 url=$2 authority=$3 hubs=$4 count=$5

[ -e "$authority/ca.pem" ] || iothub cluster init-ca "$authority"
number=1
while [ "$number" -le "$count" ]; do
    hub=$hubs/hub-$number
    mkdir -p "$hub"
    chmod 700 "$hub"
    cp "$settings" "$hub/iothub.toml"
    printf '%s\n' "$url" >"$hub/accounts.url"
    [ "$number" = 1 ] || [ -e "$hub/pepper" ] || cp "$hubs/hub-1/pepper" "$hub/pepper" # one key for all: they share the accounts
    if [ ! -e "$hub/lock" ] || [ -e "$hub/init-unfinished" ]; then iothub --data-dir "$hub" init; fi
    [ -e "$hub/cluster/key.pem" ] || iothub cluster issue "$number" --ca "$authority" --out "$hub/cluster"
    number=$((number + 1))
done
