#!/usr/bin/env bash
# Lock environments: envs/NAME.in, what is asked for, to envs/NAME.txt, the versions that answer it.
#
#     scripts/lock.sh [OPTION...] [NAME...]     without a name: all of them
#
# A lock keeps the versions that it has. `--upgrade`, like every option, is handed to `uv pip compile`.
# Locks are for Linux x86-64 with glibc 2.28 or newer, wherever this runs. They hold versions, never sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv="${UV:-.venv/bin/uv}"
draft="$(mktemp)"
trap 'rm -f "$draft"' EXIT

# Where PyTorch comes from decides what it needs: PyPI has the CUDA build, with gigabytes of libraries.
# In a subshell, so that each lock finds the variables as they were.
choose_source_and_lock() (
    local name="$1"
    shift
    if [[ "$name" == *-cuda ]]; then
        unset UV_FIND_LINKS UV_TORCH_BACKEND
    elif [[ -n "${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" ]]; then
        export UV_FIND_LINKS="${UV_FIND_LINKS:-$PIP_FIND_LINKS}"
    else
        export UV_TORCH_BACKEND=cpu
    fi
    lock "$name" "$@"
)

lock() {
    local name="$1"
    shift
    # torch is written without the label of its build, and uv would keep exactly that: PyPI's CUDA build.
    : > "$draft"
    if [[ -e "envs/$name.txt" ]]; then
        sed '/^torch==/d' "envs/$name.txt" > "$draft"
    fi
    "$uv" pip compile --quiet --no-header --no-annotate \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --build-constraints envs/build-constraints.txt \
        "$@" --output-file "$draft" "envs/$name.in" > /dev/null
    sed 's/+cpu$//' "$draft" > "envs/$name.txt"
}

main() {
    local argument name
    local -a options=() names=()
    for argument in "$@"; do
        case "$argument" in
            -*) options+=("$argument") ;;
            *) names+=("$argument") ;;
        esac
    done
    if ((${#names[@]} == 0)); then
        for argument in envs/*.in; do
            names+=("$(basename "$argument" .in)")
        done
    fi
    for name in "${names[@]}"; do
        echo "envs/$name.txt"
        choose_source_and_lock "$name" "${options[@]}"
    done
}

main "$@"
