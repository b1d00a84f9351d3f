#!/bin/sh
# Architecture lint: what no compiler checks. Ops are asked by trait, not by name; verify shares nothing with passes.
# Relies on: grep. Relied on by: make lint, make test.
set -u
bad=0
complain() { [ -z "$2" ] || { printf '%s\n%s\n' "$1" "$2"; bad=1; }; }
complain "asks for an op by name outside ir/ (use a trait or a column of ops.def):" \
    "$(grep -nE '(case|[!=]=) *OP_[A-Z]' compiler/passes/*.c compiler/emit/*.c compiler/verify/*.c compiler/report/*.c compiler/cost/*.c compiler/frontend/*.c 2>/dev/null | grep -v OP_FUSED)"
complain "verify/ knows more than the plan:" "$(grep -nE '#include .*(passes|emit|frontend|report)/' compiler/verify/*.[ch])"
complain "a path of one machine:" "$(git grep -nIE '(^|[^A-Za-z0-9_.])/(work|farm|root|home)/' -- . ':!tests/lint.sh')"
complain "unfinished:" "$(git grep -nE 'TODO|FIXME|\bXXX\b|\bHACK\b' -- '*.c' '*.h' '*.lua' '*.py' '*.sh' ':!tests/lint.sh')"
complain "longer than 900 lines:" "$(git ls-files '*.c' '*.h' '*.lua' | grep -v '^generated/' | xargs wc -l | awk '$2 != "total" && $1 > 900 { print $1, $2 }')"
for f in $(git ls-files 'compiler/*.[ch]' 'runtime/*.[ch]'); do
    case $(head -c 3 "$f") in '/* ') ;; *) complain "does not open with what it does:" "$f" ;; esac
done
exit $bad
