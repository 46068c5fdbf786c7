#!/bin/sh
# Builds @NAME@ with trtexec from the files of its translation.
# Written by qdq-translator for TensorRT @VERSION@. Further trtexec options may follow the script's name.
# TRTEXEC=/path/to/trtexec names the program where it is not on the PATH.
set -eu

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
model=@MODEL@
cache=@CACHE@
layers=@LAYERS@

for file in "$model" "$cache" ${layers:+"$layers"}; do
    [ -f "$file" ] || fail "$file is missing. Copy the whole folder of the translation, or translate again."
done

trtexec=${TRTEXEC:-trtexec}
if [ -z "${TRTEXEC:-}" ] && ! command -v trtexec >/dev/null 2>&1; then
    trtexec=/usr/src/tensorrt/bin/trtexec
fi
command -v "$trtexec" >/dev/null 2>&1 || fail "$trtexec cannot be run. Set TRTEXEC=/path/to/trtexec."

# 10.3.0.30-1+cuda12.5 -> 100300, 8.6.2.3 -> 8602: the number in the header of a calibration cache
header_number() {
    sed -n 's/^\([0-9][0-9]*\)\.\([0-9][0-9]*\)\.\([0-9][0-9]*\).*/\1 \2 \3/p' |
        awk 'NR == 1 { print $1 * ($1 < 10 ? 1000 : 10000) + $2 * 100 + $3 }'
}

# The program itself knows best; then the package of the library; then the Python package.
version=$("$trtexec" --help 2>&1 | sed -n 's/.*\[TensorRT v\([0-9][0-9]*\)\].*/\1/p' | head -n 1) || version=''
for package in libnvinfer10 libnvinfer8; do
    if [ -z "$version" ] && command -v dpkg-query >/dev/null 2>&1; then
        version=$(dpkg-query -W -f='${Version}\n' "$package" 2>/dev/null | header_number) || version=''
    fi
done
if [ -z "$version" ] && command -v python3 >/dev/null 2>&1; then
    version=$(python3 -c 'import tensorrt; print(tensorrt.__version__)' 2>/dev/null | header_number) || version=''
fi

if [ -z "$version" ]; then
    echo "The version of TensorRT could not be found; the cache is used as it is." >&2
else
    case $version in
        [1-9][0-9][0-9][0-9]) major=${version%???} ;;
        *) major=${version%????} ;;
    esac
    if [ "$major" -ge 11 ]; then
        fail "TensorRT $major has no implicit quantization. Build a strongly typed Q/DQ model there."
    fi
@WILDCARDS@    # TensorRT skips a cache whose header holds another version's number: a copy gets the right one.
    header="TRT-$version-EntropyCalibration2"
    if [ "$(head -n 1 "$cache" | tr -d '\r')" != "$header" ]; then
        copy=${cache%.cache}_trt$version.cache
        { printf '%s\n' "$header" && sed 1d "$cache"; } >"$copy.$$" && mv -f "$copy.$$" "$copy" ||
            fail "$copy cannot be written. Copy the folder of the translation to where it can."
        echo "The cache was made for another version than $version: using $copy" >&2
        cache=$copy
    fi
fi

exec "$trtexec" @ARGUMENTS@ \
    "$@"
