#!/usr/bin/env bash
# Prints the path of a program of Debian's package prometheus (promtool, prometheus). An installed
# program is used. Otherwise the package is downloaded and unpacked into the cache, but not installed:
# only its programs are needed, and installing it would start a server.
set -euo pipefail
program="${1:?name the program: promtool or prometheus}"
cache="${SEAMARK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/seamark}/promtool"
if command -v "$program"; then
  exit
fi
if [[ ! -x "$cache/usr/bin/$program" ]]; then
  echo "downloading $program from Debian's package prometheus into $cache" >&2
  mkdir -p "$(dirname "$cache")"
  fetch="$(mktemp -d "$cache.XXXXXX")"
  trap 'rm -rf "$fetch"' EXIT
  chmod 755 "$fetch" # apt downloads as another user
  (cd "$fetch" && { apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null; apt-get download -q prometheus >/dev/null; }; })
  dpkg-deb -x "$fetch"/prometheus_*.deb "$fetch/unpacked"
  # The move is atomic: a run that is killed, or a parallel run, never leaves a partial program.
  [[ -x "$cache/usr/bin/$program" ]] || rm -rf "$cache"
  mv -T "$fetch/unpacked" "$cache" 2>/dev/null || [[ -x "$cache/usr/bin/$program" ]]
fi
echo "$cache/usr/bin/$program"
