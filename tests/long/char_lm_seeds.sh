#!/usr/bin/env bash
# char_lm with its defaults on the King James Bible: the validation loss over the whole split is at most 1.63 nats a
# character, as the mean of seeds 0 to 2. Argument: the build folder.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
text=build/king_james.txt
if [[ ! -e $text ]]; then
  ./run char_lm --max_iters 1 >/dev/null || exit 1  # installs and extracts it
fi

losses=()
for seed in 0 1 2; do
  output=$("$1/examples/char_lm" --text "$text" --seed $seed --threads "$(nproc)" 2>&1)
  loss=$(sed -n 's/^validation loss over the whole split \([0-9.]*\).*/\1/p' <<<"$output")
  if [[ -z $loss ]]; then
    printf '%s\n' "$output" "seed $seed failed"
    exit 1
  fi
  printf 'seed %s: %s, %s\n' $seed "$loss" "$(grep '^trained' <<<"$output")"
  losses+=("$loss")
done
awk 'BEGIN { for (i = 1; i < ARGC; ++i) sum += ARGV[i]; mean = sum / (ARGC - 1); printf "mean %.4f\n", mean; exit mean > 1.63 }' \
  "${losses[@]}"
