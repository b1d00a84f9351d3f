#!/bin/sh
# Copies shardc and what it needs below a folder, and removes exactly that again: each file and each folder that did not exist
# before is noted in lib/shardc/installed.
#   install.sh BUILD PREFIX      install.sh --remove PREFIX
# Relies on: install(1). Relied on by: make install, make uninstall.
set -eu
umask 022
prefix=${2:?}
list=$prefix/lib/shardc/installed

# The last folder first, so that each is empty when its turn comes.
remove() {
    [ -f "$1" ] || return 0
    while IFS= read -r line; do
        case $line in f\ *) rm -f "$prefix/${line#f }" ;; esac
    done <"$1"
    sed -n 's/^d //p' "$1" | sort -ru >"$1.folders"
    folders=$(cat "$1.folders")
    rm -f "$1" "$1.folders"
    printf '%s\n' "$folders" | while IFS= read -r folder; do
        [ -z "$folder" ] || (cd "$prefix/.." && rmdir "$(basename "$prefix")/${folder#.}") 2>/dev/null || :
    done
}

if [ "$1" = --remove ]; then
    [ -f "$list" ] || { echo "$prefix has no $list: nothing was installed there by make install" >&2; exit 1; }
    remove "$list"
    exit 0
fi

B=$1
new=$(mktemp)
trap 'rm -f "$new"' EXIT
folder() { # makes it, and notes those that were not there
    [ -d "$prefix/$1" ] && return 0
    case $1 in */*) folder "${1%/*}" ;; esac
    mkdir -p "$prefix/$1"
    echo "d $1" >>"$new"
}
put() { # MODE FOLDER FILE...
    mode=$1 to=$2
    shift 2
    folder "$to"
    for file in "$@"; do
        [ -f "$file" ] || continue
        install -m "$mode" "$file" "$prefix/$to/"
        echo "f $to/${file##*/}" >>"$new"
    done
}
made() { # FOLDER NAME, from standard input
    folder "$1"
    cat >"$prefix/$1/$2"
    chmod 644 "$prefix/$1/$2"
    echo "f $1/$2" >>"$new"
}
tree() { # FROM TO: the files of a folder and of those below it
    for at in $(cd "$1" && find . -type d | sort); do
        [ -z "$(find "$1/$at" -maxdepth 1 -type f)" ] || put 644 "$(printf %s "$2/$at" | sed 's|/\.$||; s|/\./|/|')" "$1/$at"/*
    done
}

[ ! -f "$list" ] || grep '^d ' "$list" >>"$new" || : # folders of an earlier install are its own still
[ -d "$prefix" ] || { mkdir -p "$prefix" && echo "d ." >>"$new"; }
put 755 bin "$B/shardc"
put 644 lib/shardc "$B/libsc_cpu.a" "$B/libsc_cpu_portable.a" "$B/libsc_cuda.a" "$B/libsc_cuda.archs"
put 755 lib/shardc "$B/sc_calibrate"
put 644 share/shardc/runtime runtime/*.h
for part in schema common cuda; do
    case $part in
    schema) put 644 share/shardc/runtime/schema runtime/schema/* ;;
    common) put 644 share/shardc/runtime/common runtime/common/*.h ;;
    cuda) put 644 share/shardc/runtime/cuda runtime/cuda/*.h runtime/cuda/*.cuh ;;
    esac
done
tree models share/shardc/models
put 644 share/doc/shardc LICENSE README.md
for page in $(git ls-files 'compiler/*.md' 'runtime/*.md' 2>/dev/null || find compiler runtime -name '*.md'); do
    put 644 "share/doc/shardc/${page%/*}" "$page"
done
put 644 share/man/man1 man/shardc.1
"$B/shardc" completions bash | made share/bash-completion/completions shardc
"$B/shardc" completions zsh | made share/zsh/site-functions _shardc
"$B/shardc" completions fish | made share/fish/vendor_completions.d shardc.fish
folder lib/shardc
if [ -f "$list" ]; then # what an earlier install put and this one does not
    grep '^f ' "$list" | while IFS= read -r line; do
        grep -qxF "$line" "$new" || rm -f "$prefix/${line#f }"
    done
fi
install -m 644 "$new" "$list"
