#!/usr/bin/env bash
# The acceptance runs on the Mooncake conversation trace: tests/trace_conversation.sh KVLEASE
set -euo pipefail
kvlease=$1
trace=${KVLEASE_TRACE:-$(dirname "${BASH_SOURCE[0]}")/../../shared/traces/mooncake-conversation.jsonl}
if [ ! -r "$trace" ]; then
  echo "SKIP: there is no trace at $trace (KVLEASE_TRACE names another place; README.md says where it comes from)"
  exit 0
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# field FILE NAME: a top-level value; the report has one a line
field() { sed -n "s/^  \"$2\": \"\{0,1\}\([^,\"]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1"; }
# want FILE FIELD VALUE
want() {
  local got
  got=$(field "$1" "$2")
  [ "$got" = "$3" ] || { echo "$2 is '$got', must be '$3'"; exit 1; }
}
# run STATUS NAME ARGUMENTS...: replays and checks the exit status
run() {
  local wanted=$1 name=$2 status=0
  shift 2
  echo "== $name: $*"
  "$kvlease" replay --trace "$trace" --json "$out/$name.json" "$@" || status=$?
  [ "$status" = "$wanted" ] || { echo "exit status $status, must be $wanted"; exit 1; }
}

run 0 exact --concurrency 1 --local-reuse off
want "$out/exact.json" requests 12031
want "$out/exact.json" block_refs 276491
want "$out/exact.json" fetched_blocks 105592
want "$out/exact.json" oracle_hit_blocks 105592
want "$out/exact.json" published_blocks 170899

run 0 parallel --concurrency 32
want "$out/parallel.json" wrong_blocks 0
want "$out/parallel.json" exposure_bytes 0

faults=(--abort 0.1 --faults "partial=0.05,fail=0.02,late=0.05,reject=0.01")
run 0 faults --concurrency 32 "${faults[@]}" --seed 5
run 0 seed-1 --concurrency 1 "${faults[@]}" --seed 1 --requests 3000
run 0 again-1 --concurrency 1 "${faults[@]}" --seed 1 --requests 3000
want "$out/again-1.json" outcome_digest "$(field "$out/seed-1.json" outcome_digest)"

run 3 hang --faults hang=0.001 --timeout 200ms
want "$out/hang.json" exposure_bytes 0
run 0 late --faults late=0.005 --late 600ms --timeout 1s
grep -q '"timeout": [1-9]' "$out/late.json" || { echo "no request timed out: the late ends came too early"; exit 1; }
