# What an object file depends on of the table of ops. A file that reads the table through schema/args.h and sc_kernels.h
# alone depends on the structs that it names, not on the table.
# Relies on: schema/ops.def, cc -E, awk. Relied on by: the Makefile.
#
# rows.sh rows DIR: DIR/OP holds the struct of each op; a file is written only where it changes.
# rows.sh deps DIR FILE.d: the dependencies of an object, as the compiler wrote them; the table gives way to such files.
set -e
dir=$2
case $1 in
rows)
    mkdir -p "$dir"
    echo '#include "sc.h"' | ${CC:-cc} -E -P -Iruntime - | awk -v dir="$dir" '
        BEGIN {
            list = "ls " dir
            while ((list | getline op) > 0) gone[op] = 1
            close(list)
        }
        /} sc_[a-z0-9_]+_args;$/ {
            op = $NF
            sub(/^sc_/, "", op)
            sub(/_args;$/, "", op)
            was = ""
            file = dir "/" op
            getline was <file
            close(file)
            if (was != $0) print >file
            close(file)
            delete gone[op]
        }
        END {
            for (op in gone) system("rm " dir "/" op)
        }'
    ;;
deps)
    awk -v dir="$dir" '
        function names_of(file, line, name) { # which ops a file names; table: it includes the table itself
            if (file ~ /(^|\/)(sc|args|sc_kernels|rows)\.h$/ && file ~ /runtime|\.\./) return
            while ((getline line <file) > 0) {
                if (line ~ /#include ".*ops\.def"/) table = 1
                while (match(line, /sc_[a-z0-9_]+_args|SC_SLOTS_[a-z0-9_]+|SC_(KERNEL|FINISH)\([a-z0-9_]+\)/)) {
                    name = substr(line, RSTART, RLENGTH)
                    line = substr(line, RSTART + RLENGTH)
                    gsub(/^sc_|_args$|^SC_SLOTS_|^SC_[A-Z]+\(|\)$/, "", name)
                    named[name] = 1
                }
            }
            close(file)
        }
        { text[++n] = $0 }
        END {
            for (i = 1; i <= n; i++) {
                if (text[i] ~ /^[^ ]+:$/) continue
                m = split(text[i], word, /[ \\]+/)
                for (k = 1; k <= m; k++)
                    if (word[k] ~ /^[^\/].*\.(c|cu|h|cuh)$/) names_of(word[k])
            }
            for (name in named) {
                file = dir "/" name
                if ((getline line <file) > 0) rows = rows " " file
                close(file)
            }
            for (i = 1; i <= n; i++) {
                if (!table && text[i] ~ /^[^ ]*ops\.def:$/) text[i] = ""
                if (!table && text[i] ~ /ops\.def/) {
                    gsub(/[^ ]*schema\/ops\.def/, rows, text[i])
                }
                print text[i]
            }
        }' "$3" >"$3.part"
    mv "$3.part" "$3"
    ;;
esac
