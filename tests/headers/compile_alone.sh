#!/usr/bin/env bash
# Every header compiles alone: a source for each that includes nothing else. Arguments: the source folder, the compiler,
# its flags.
set -uo pipefail
cd "$1"
shift
check() {
  local header=$1
  shift
  echo "#include <xtape/$header>" | "$@" -fsyntax-only -x c++ - || { echo "$header does not compile alone"; return 1; }
}
export -f check
headers=$(find framework layers pretrained -name '*.hpp' | sort)
(($(wc -w <<<"$headers") > 50)) || { echo 'the headers were not found'; exit 1; }
if check framework/no_such_header.hpp "$@" 2>/dev/null >/dev/null; then echo 'a header that does not compile would not be seen'; exit 1; fi
xargs -P "$(nproc)" -I{} bash -c 'check "$@"' bash {} "$@" <<<"$headers"
