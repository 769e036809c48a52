#!/bin/bash
# Measures this server, in a state of its own, against Docker when a daemon
# answers; see bench/main.go. Arguments go to the program.
set -euo pipefail
source "$(dirname "$0")/env.sh"
bin/modbox images build
exec scripts/with-server.sh go run ./bench "$@"
