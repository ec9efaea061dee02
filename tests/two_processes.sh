#!/usr/bin/env bash
# One process publishes what 2,000 requests compute, another one fetches it, and checks each byte: names alone
# decide what stands in a block. tests/two_processes.sh KVLEASE ucx
set -euo pipefail
kvlease=$1
out=$(mktemp -d)
publisher=
trap '[ -z "$publisher" ] || kill "$publisher" 2> /dev/null || true; rm -rf "$out"' EXIT
work=(--generate conversation --requests "${KVLEASE_REQUESTS:-2000}" --concurrency 8 --local-reuse off --timeout 30s)

# field FILE NAME: a top-level value; the report has one a line
field() { sed -n "s/^  \"$2\": \"\{0,1\}\([^,\"]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1"; }

case $2 in
  ucx)
    publish_uri=ucx://127.0.0.1:0?bytes=8G
    # Of "ucx (HOST:PORT over tcp, ..."
    fetch_uri_of() { echo "ucx://127.0.0.1:0?peers=$(sed -n 's/.*ucx (\([^ ]*\) .*/\1/p' <<< "$1")"; }
    ;;
  *)
    echo "no way is named '$2'; there is: ucx"
    exit 2
    ;;
esac

# The publisher's input stays open until we close it.
mkfifo "$out/input"
"$kvlease" replay "${work[@]}" --backend "$publish_uri" --role publish --instances 1 --json "$out/publish.json" \
  < "$out/input" > "$out/publish.txt" 2>&1 &
publisher=$!
exec 9> "$out/input"
until grep -q "^published; serving" "$out/publish.txt"; do
  kill -0 "$publisher" 2> /dev/null || { cat "$out/publish.txt"; echo "the publisher has ended"; exit 1; }
  sleep 0.1
done
serving=$(grep "^published; serving" "$out/publish.txt")
echo "$serving"
"$kvlease" replay "${work[@]}" --backend "$(fetch_uri_of "$serving")" --role fetch --instances 2 --json "$out/fetch.json"
exec 9>&-
wait "$publisher" || { cat "$out/publish.txt"; echo "the publisher failed"; exit 1; }
publisher=

for side in publish fetch; do
  for wanted in wrong_blocks exposure_bytes; do
    got=$(field "$out/$side.json" "$wanted")
    [ "$got" = 0 ] || { echo "$side: $wanted is '$got', must be 0"; exit 1; }
  done
done
fetched=$(field "$out/fetch.json" fetched_blocks)
[ "$fetched" -gt 0 ] || { echo "nothing was fetched"; exit 1; }
grep -q '"miss": 0' "$out/fetch.json" && grep -q '"partial": 0' "$out/fetch.json" ||
  { echo "something that was published was missed"; exit 1; }
echo "two processes over $2: $fetched blocks fetched and checked, wrong_blocks 0"
