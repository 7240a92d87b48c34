#!/usr/bin/env bash
# Checks the alert rules with promtool. Debian's package is unpacked into the cache rather than installed: only the one program is
# needed, and installing it would start a server.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache="${SEAMARK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/seamark}/promtool"
tool="$cache/usr/bin/promtool"
if command -v promtool >/dev/null; then
  tool=promtool
elif [[ ! -x "$tool" ]]; then
  echo "fetching promtool from Debian's package prometheus into $cache"
  mkdir -p "$cache"
  fetch="$(mktemp -d)"
  trap 'rm -rf "$fetch"' EXIT
  chmod 755 "$fetch"
  (cd "$fetch" && { apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null; apt-get download -q prometheus >/dev/null; }; })
  dpkg-deb -x "$fetch"/prometheus_*.deb "$cache"
fi
"$tool" check rules deploy/monitoring/alerts.yaml
"$tool" test rules test/monitoring/alerts_test.yaml
