#!/usr/bin/env bash
# Log commands from a shell with curl, and find them again.
#
#     LOGKIT_URL=http://127.0.0.1:8080 ./client.sh
set -euo pipefail
url=${LOGKIT_URL:-http://127.0.0.1:8080}
auth=()
[[ -z ${LOGKIT_API_KEY:-} ]] || auth=(-H "Authorization: Bearer $LOGKIT_API_KEY")

# A text as JSON. Control characters other than these three are left out.
quote() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t} text=${text//$'\r'/\\r}
    printf '"%s"' "${text//[[:cntrl:]]/}"
}

# Runs a command and logs it: its arguments, output, time and whether it succeeded.
logged() {
    local began=$EPOCHREALTIME output status=0 args=() arg
    output=$("$@" 2>&1) || status=$?
    local took=$((${EPOCHREALTIME/[.,]/} - ${began/[.,]/}))
    for arg in "${@:2}"; do args+=("$(quote "$arg")"); done
    local list
    list=$(IFS=,; printf '%s' "${args[*]-}")
    curl -sS --fail-with-body --retry 3 "${auth[@]}" "$url/log" --data-binary @- >/dev/null <<JSON
{"cmd": $(quote "$1"), "args": [$list], "language": "bash", "env": "example",
 "success": $([[ $status = 0 ]] && echo true || echo false),
 "duration_ms": $((took / 1000)).$(printf %03d $((took % 1000))), "output": $(quote "$output"),
 "extra": {"returncode": $status}}
JSON
    printf '%s\n' "$output"
    return "$status"
}

logged echo "it's \"quoted\""
logged ls /does/not/exist || true
# One transaction for many: one object a line.
printf '{"cmd": "step %d", "env": "example"}\n' 1 2 3 |
    curl -sS --fail-with-body "${auth[@]}" "$url/log/batch" --data-binary @-
echo
curl -sS --fail-with-body "${auth[@]}" "$url/logs?env=example&level=ERROR&limit=1&format=ndjson"
