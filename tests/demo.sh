#!/bin/sh
# make demo: predicts, shows the schedule, trains a byte-level GPT on two sharded ranks, compares with a bigram, samples.
# Relies on: build/shardc, the repository's own text. Relied on by: make demo.
set -eu
B=$1
D=$B/demo
mkdir -p "$D"
options="--world 2 --set layers=4 --set dim=192 --set heads=6 --set vocab=256 --set batch=8 --set seq=128 --set lr=2e-3"
say() { printf '\n── %s\n' "$*"; }

say "data: the repository's C sources; whole files are held out for validation"
ls compiler/*.c compiler/*/*.c compiler/*/*.h runtime/*.h runtime/*/*.c runtime/*/*.h tests/unit/*.c | sort > "$D/files"
awk 'NR % 12 == 5' "$D/files" > "$D/val.files"
awk 'NR % 12 != 5' "$D/files" > "$D/train.files"
"$B/shardc" data $(cat "$D/train.files") -o "$D/train.bin"
"$B/shardc" data $(cat "$D/val.files") -o "$D/val.bin"

say "shardc predict: memory and time, before anything runs"
"$B/shardc" predict models/gpt2.lua $options

say "shardc inspect: the schedule (units and the first events)"
"$B/shardc" inspect models/gpt2.lua $options --program micro > "$D/schedule.txt"
head -n 30 "$D/schedule.txt"
echo "... $(wc -l < "$D/schedule.txt") lines in $D/schedule.txt"

say "shardc run: compile to C, link, train on 2 ranks"
"$B/shardc" run models/gpt2.lua $options -o "$D/gpt" -- --data "$D/train.bin" --val-data "$D/val.bin" \
    --steps 600 --warmup 40 --total 600 --eval-every 200 --seed 1 --log "$D/log.jsonl" --sample 400 --prompt "static int "

say "result"
bigram=$(/usr/bin/python3 tests/bigram.py "$D/train.bin" "$D/val.bin")
model=$(sed -n 's/.*"val_loss": *\([0-9.e+-]*\).*/\1/p' "$D/log.jsonl" | tail -n 1)
echo "byte bigram fitted on the same text: $bigram nats per byte on the held-out files"
echo "this model:                          $model nats per byte on the held-out files"
awk -v b="$bigram" -v m="$model" 'BEGIN { if (m == "" || b - m < 0.3) { print "FAIL: less than 0.3 nats better"; exit 1 } printf "%.3f nats better\n", b - m }'
