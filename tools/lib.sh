# Sourced by the scripts beside it: where the repository is, and how they speak.
# shellcheck shell=bash
# shellcheck disable=SC2034
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*"; }

# Reason first, remedy second.
die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '       %s\n' "$2" >&2
  exit 1
}
