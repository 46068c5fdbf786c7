#!/bin/sh
# From a Q/DQ model to a folder that builds a DLA loadable on the board. Runs on any machine with Python.
#
#   make_loadable.sh MODEL.onnx PLATFORM [FOLDER] [translate's options ...]
#
# PLATFORM   what the board has: jetpack-6.0, jetpack-6.2, drive-os-6.0.9, ... (decides the number in the cache)
# FOLDER     gets the translation and build_loadable.sh (default: translated)
#
# Environment:
#   INPUT_FORMATS, OUTPUT_FORMATS  trtexec's I/O formats (default: int8:dla_linear and fp16:chw16)
#   SHAPES                         NAME:DIMS of dynamic inputs; a loadable has fixed shapes
#   QDQ_TRANSLATOR                 the command (default: qdq-translator)
set -eu

fail() {
    printf 'make_loadable.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

[ $# -ge 2 ] || fail "usage: make_loadable.sh MODEL.onnx PLATFORM [FOLDER] [options of translate ...]" 2
model=$1 platform=$2
shift 2
folder=translated
case "${1:-}" in
    '' | -*) ;;
    *) folder=$1 && shift ;;
esac
[ -f "$model" ] || fail "$model is not there."
input_formats=${INPUT_FORMATS:-int8:dla_linear}
output_formats=${OUTPUT_FORMATS:-fp16:chw16}
qdq=${QDQ_TRANSLATOR:-qdq-translator}
name=$(basename "$model" .onnx)
stripped=$folder/${name}_noqdq.onnx

echo "== Translate for $platform"
# shellcheck disable=SC2086  # several shapes are several words
"$qdq" translate -i "$model" -o "$folder" --target orin-dla --platform "$platform" --add_unary_ew_scales_for_dla \
    --dla_rewrites --dla_output 4d ${SHAPES:+--shapes $SHAPES} "$@"
if "$qdq" report -t "$stripped" --json | grep -q '"gpu": [1-9]'; then
    echo "note: a loadable has no GPU to fall back to, and the DLA should refuse layers of this model;" \
        "'$qdq report -t $stripped' names them." >&2
fi

echo "== The script for the board"
write_script() {
    "$qdq" build --print -t "$stripped" --target orin-dla --dla_standalone --platform "$platform" \
        --input_io_formats "$input_formats" --output_io_formats "$output_formats" \
        --save_engine "$folder/$name.loadable" "$@" --script "$folder/build_loadable.sh"
}
# the rewrites fix the shapes where they change anything; trtexec wants shapes only where they are open
if said=$(write_script 2>&1); then
    printf '%s\n' "$said"
else
    # shellcheck disable=SC2086
    [ -n "${SHAPES:-}" ] && write_script --opt_shapes $SHAPES || fail "$said"
fi

echo "Copy $folder to the board and run ./build_loadable.sh there: it makes $name.loadable."
