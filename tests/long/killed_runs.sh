#!/usr/bin/env bash
# A run that is killed (SIGKILL) at 200 random moments always goes on from a whole checkpoint, and ends in the same bits
# as the run that was never stopped. Argument: the build folder; XTAPE_KILLS sets another number, XTAPE_SEED other moments.
set -uo pipefail
program=$1/examples/copy_task
kills=${XTAPE_KILLS:-200}
RANDOM=${XTAPE_SEED:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# 30 steps of a small model with dropout, and a checkpoint at every second step: most kills hit the writing of one.
settings=(--width 16 --heads 2 --layers 1 --length 4 --letters 20 --batch 8 --dropout 0.1 --steps 30 --evaluate_every 2)

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

# The weights, the moments, the state and the metrics (without times) of a finished run, as one text.
end_of() {
  (cd "$1" && sha256sum model.safetensors checkpoint-30/{model,optimizer}.safetensors checkpoint-30/state.json &&
    sed 's/,"tokens_per_s.*//' metrics.jsonl)
}

begin=$(date +%s%N)
"$program" "${settings[@]}" --threads 1 --out "$folder/whole" >/dev/null
[[ -e $folder/whole/model.safetensors ]] || fail 'the run that is not stopped did not end'
milliseconds=$((($(date +%s%N) - begin) / 1000000))
expected=$(end_of "$folder/whole")

killed=0 runs=0 resumed=0 in_a_save=0 before_any=0
run=$folder/killed
while ((killed < kills)); do
  # Where there is a checkpoint the run goes on from it, and else it begins; on one or two threads.
  if [[ -e $run/latest || -d $run/checkpoint-2 ]]; then
    flags=(--resume "$run" --threads $((1 + RANDOM % 2)))
    resumed=$((resumed + 1))
  else
    flags=("${settings[@]}" --out "$run")
    before_any=$((before_any + 1))
  fi
  "$program" "${flags[@]}" >"$folder/output" 2>&1 &
  process=$!
  moment=$((RANDOM % (milliseconds / 2 + 1)))
  sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
  kill -KILL $process 2>/dev/null
  wait $process 2>/dev/null
  code=$?
  case $code in
    137)
      killed=$((killed + 1))
      compgen -G "$run/*.writing.*" >/dev/null && in_a_save=$((in_a_save + 1))
      ;;
    0 | 2) ;;
    *) fail "exit code $code: $(cat "$folder/output")" ;;
  esac
  if [[ -e $run/latest && ! -e $run/$(<"$run/latest")/state.json ]]; then fail "latest means no checkpoint"; fi
  if ((code != 137 || killed == kills)); then  # to the end, if it is not there yet
    if [[ -e $run/latest || -d $run/checkpoint-2 ]]; then
      output=$("$program" --resume "$run" 2>&1) || (($? == 2)) || fail "does not go on: $output"
      [[ $(end_of "$run") == "$expected" ]] || fail "after $killed kills the end is another: $(diff <(end_of "$run") <(echo "$expected"))"
      compgen -G "$run/*.writing.*" >/dev/null && [[ $code == 137 ]] && fail 'temporaries are left'
      runs=$((runs + 1))
    fi
    rm -rf "$run"
  fi
done
printf 'a run of %d ms, killed %d times: resumed %d times, begun %d times; %d kills in the middle of a save;\n' \
  "$milliseconds" "$killed" "$resumed" "$before_any" "$in_a_save"
printf '%d runs came to their end, each with the bits and metrics of the run that was never stopped\n' "$runs"
((runs > 0 && resumed > 0))
