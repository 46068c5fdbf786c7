/* The functions that TensorRT's Python binding module asks of TensorRT's libraries: enough to import it, no more.
 *
 * Compiled once and copied to every library name the module needs. The factories return null, so the module refuses to
 * make a Builder, a Runtime or a parser; enums, class attributes, docstrings, subclasses written in Python and their
 * callbacks are the module's own and work. Names are those that `nm -D --undefined-only tensorrt.so` lists.
 */
#include <stddef.h>

#define RETURNS_NULL(name) \
    void* name(void) { return NULL; }

RETURNS_NULL(createInferBuilder_INTERNAL)
RETURNS_NULL(createInferRefitter_INTERNAL)
RETURNS_NULL(createInferRuntime_INTERNAL)
RETURNS_NULL(createNvOnnxParser_INTERNAL)
RETURNS_NULL(createNvOnnxParserRefitter_INTERNAL)
RETURNS_NULL(getBuilderPluginRegistry)
RETURNS_NULL(getPluginRegistry)

int getNvOnnxParserVersion(void) { return 0; }
int initLibNvInferPlugins(void) { return 1; }

/* 8.6 only: the Caffe and UFF parsers, C++ functions under their mangled names */
RETURNS_NULL(_ZN11nvuffparser15createUffParserEv)
RETURNS_NULL(_ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi)
RETURNS_NULL(_ZN14nvcaffeparser117createCaffeParserEv)
RETURNS_NULL(_ZN14nvcaffeparser123shutdownProtobufLibraryEv)
