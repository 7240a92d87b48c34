#!/usr/bin/env bash
# Checks the alert rules with promtool.
set -euo pipefail
cd "$(dirname "$0")/../.."
tool="$(test/monitoring/fetch.sh promtool)"
"$tool" check rules deploy/monitoring/alerts.yaml
"$tool" test rules test/monitoring/alerts_test.yaml
