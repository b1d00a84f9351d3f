#!/bin/sh
# Architecture lint: what no compiler checks. Ops are asked by trait; verify shares nothing with passes; const stays.
# Relies on: grep. Relied on by: make lint, make test.
set -u
bad=0
sources=$(git ls-files -co --exclude-standard compiler runtime tests | grep -E '\.(c|h|cc|cu|cuh|def)$')
complain() { [ -z "$2" ] || { printf '%s\n%s\n' "$1" "$2"; bad=1; }; }
complain "reads a field through another op's name, or asks for an op by name (KNOWN and NAMED in tests/ops.py):" "$(python3 tests/ops.py)"
complain "reads an operand, a result or an attribute by its number (write its name: op->matmul.bias, k->bias):" \
    "$(git grep -nE '(->|\.)(in|out|t|[if])\[[0-9]+\]' -- $sources; git grep -nE '(^|[^A-Za-z0-9_>.])t\[[0-9]' -- 'runtime/*')"
complain "a cast that takes the const away from the IR or the plan:" \
    "$(grep -nE '\((Value|Op|Graph|Program|Param|Unit|Module|State|Extension|Plan|PlanProgram|Event) \*\)' compiler/*/*.[ch] compiler/*/*/*.[ch] |
        grep -vE 'VEC\(|sizeof')"
complain "verify/ knows more than the plan:" "$(grep -nE '#include .*(lower|schedule|emit|frontend|report)/' compiler/verify/*.[ch])"
complain "includes a folder that it may not know:" "$(python3 tests/folders.py)"
complain "calls or includes in a circle:" "$(python3 tests/circles.py)"
complain "says an untrue thing about who relies on it:" "$(python3 tests/openings.py)"
complain "declares a name without a prefix:" "$(python3 tests/prefixes.py)"
complain "a path of one machine:" "$(git grep -nIE '(^|[^A-Za-z0-9_.])/(work|farm|root|home)/' -- . ':!tests/lint.sh')"
complain "unfinished:" "$(git grep -nE 'TODO|FIXME|\bXXX\b|\bHACK\b' -- '*.c' '*.h' '*.lua' '*.py' '*.sh' ':!tests/lint.sh')"
# compiler/devices/ holds tables of measurements.
complain "longer than 900 lines:" "$(git ls-files -co --exclude-standard '*.c' '*.h' '*.lua' | grep -vE '^generated/|^compiler/devices/.*lua' | xargs wc -l | awk '$2 != "total" && $1 > 900 { print $1, $2 }')"
for f in $(git ls-files -co --exclude-standard 'compiler/*.[ch]' 'runtime/*.[ch]'); do
    case $(head -c 3 "$f") in '/* ') ;; *) complain "does not open with what it does:" "$f" ;; esac
done
exit $bad
