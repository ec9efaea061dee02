#!/usr/bin/env bash
# A segment store over a restart, by the command: tests/replay_restart.sh KVLEASE
# The second run is given what the first has published, and does not publish it again: its whole prompts hit.
set -euo pipefail
kvlease=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# field FILE NAME: a top-level value; the report has one a line
field() { sed -n "s/^  \"$2\": \"\{0,1\}\([^,\"]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1"; }
# want FILE FIELD VALUE
want() {
  local got
  got=$(field "$1" "$2")
  [ "$got" = "$3" ] || { echo "$1: $2 is '$got', must be '$3'"; exit 1; }
}

for durable in off on; do
  store="segment:$out/$durable?bytes=256M&durable=$durable"
  for run in first second faulty; do
    faults=()
    [ $run != faulty ] || faults=(--faults late=.1,stubborn=.05,partial=.1,fail=.05)
    "$kvlease" replay --generate conversation --requests 300 --local-reuse off --concurrency 8 \
      --backend "$store" --json "$out/$run.json" --quiet "${faults[@]}"
    want "$out/$run.json" wrong_blocks 0
    want "$out/$run.json" exposure_bytes 0
  done
  first=$(field "$out/first.json" fetched_blocks)
  second=$(field "$out/second.json" fetched_blocks)
  whole=$(field "$out/second.json" block_refs)
  echo "durable=$durable: the first run fetched $first blocks, the second $second of $whole"
  [ "$second" -gt "$first" ] || { echo "the restart has lost what was published"; exit 1; }
  want "$out/second.json" fetched_blocks "$whole"
done
