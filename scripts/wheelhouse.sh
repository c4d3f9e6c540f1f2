#!/usr/bin/env bash
# Pack the packages of locks, and the wheels of this project, for a machine without a registry: for another Python and glibc.
#
#     scripts/wheelhouse.sh FOLDER PYTHON_VERSION PLATFORM [NAME...]     as in: wheelhouse 3.12 manylinux_2_28_x86_64 dev data
#
# A lock that names a Python is packed for that one. Each file has a hash that is locked. A package without a wheel is packed as its source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin="${BIN:-.venv/bin}"
folder="$1" version="$2" platform="$3"
shift 3
list="$(mktemp)"
trap 'rm -f "$list"' EXIT

if [[ ! "$version" =~ ^3\.[0-9]+$ || ! "$platform" =~ ^manylinux_2_([0-9]+)_x86_64$ ]]; then
    echo "PYTHON_VERSION is $version and PLATFORM is $platform: write them as 3.12 and manylinux_2_28_x86_64 (for glibc 2.28)" >&2
    exit 1
fi
# Told of a platform, pip takes no wheel for an older glibc, nor by the names that such wheels had first.
platforms=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64)
for ((minor = BASH_REMATCH[1]; minor >= 5; minor--)); do
    platforms+=(--platform "manylinux_2_${minor}_x86_64")
done

mkdir -p "$folder"
folder="$(realpath "$folder")"
for name in "$@" build-constraints; do
    python="$(sed -n 's/^# python: //p' "envs/$name.in")"
    # pip would read the lock's conditions as those of the Python that runs it.
    "$bin/uv" pip compile --quiet --no-deps --no-header --no-annotate --generate-hashes --python-version "${python:-$version}" \
        --python-platform x86_64-manylinux_2_28 "envs/$name.txt" > "$list"
    "$bin/python" -m pip download --quiet --no-deps --require-hashes --implementation cp --python-version "${python:-$version}" \
        "${platforms[@]}" --dest "$folder" --requirement "$list"
done
python="$(realpath --no-symlinks "$bin/python")"
for project in . probe plugins/*/; do
    (cd "$project" && "$python" -m hatchling build --target wheel --directory "$folder" > /dev/null 2>&1)
done
du -sh "$folder"
