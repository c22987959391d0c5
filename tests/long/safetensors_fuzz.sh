#!/usr/bin/env bash
# Builds the fuzzer of tests/fuzz with clang and runs it for ten minutes (XTAPE_FUZZ_SECONDS sets another time). What it
# finds it leaves in the build folder, as it does new inputs that reach new code. Argument: the build folder.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$build/fuzz/objects" "$build/fuzz/found"
flags=(-std=c++20 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all "-I$build/include")
sources=(tests/fuzz/*.cpp framework/base/{excerpt,float16,layer_name,shape}.cpp
  framework/train/{mapped_file,replacement,safetensors_elements,safetensors_file,safetensors_header}.cpp)
objects=()
for source in "${sources[@]}"; do
  objects+=("$build/fuzz/objects/$(basename "$source" .cpp).o")
  clang++ "${flags[@]}" -c "$source" -o "${objects[-1]}"
done
clang++ "${flags[@]}" -fsanitize=fuzzer "${objects[@]}" -lfmt -o "$build/fuzz/safetensors_fuzz"
"$build/fuzz/safetensors_fuzz" -max_total_time="${XTAPE_FUZZ_SECONDS:-600}" -dict=tests/fuzz/safetensors.dict -max_len=4096 \
  -rss_limit_mb=1024 -timeout=5 -print_final_stats=1 -artifact_prefix="$build/fuzz/" "$build/fuzz/found" tests/fuzz/corpus
