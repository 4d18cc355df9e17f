#!/usr/bin/env bash
# Archive a folder and keep the newest N archives.
set -euo pipefail

usage() {
    printf 'usage: %s [-k COUNT] SOURCE TARGET\n' "${0##*/}" >&2
    exit 2
}

keep=7
while getopts ':k:' option; do
    case $option in
        k) keep=$OPTARG ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
[[ $# -eq 2 && $keep =~ ^[1-9][0-9]*$ ]] || usage

source_dir=${1%/}
target_dir=${2%/}
[[ -d $source_dir ]] || { echo "no such folder: $source_dir" >&2; exit 1; }
mkdir -p -- "$target_dir"

name=$(basename -- "$source_dir")
stamp=$(date -u +%Y%m%dT%H%M%SZ)
partial=$(mktemp -- "$target_dir/.partial.XXXXXX")
trap 'rm -f -- "$partial"' EXIT

tar -C "$(dirname -- "$source_dir")" -czf "$partial" -- "$name"
gzip -t < "$partial"
mv -- "$partial" "$target_dir/$name-$stamp.tar.gz"

# Stamps sort like dates, so a glob already lists the oldest first.
archives=("$target_dir/$name"-*T*Z.tar.gz)
surplus=$((${#archives[@]} - keep))
for ((i = 0; i < surplus; i++)); do
    rm -v -- "${archives[i]}"
done
