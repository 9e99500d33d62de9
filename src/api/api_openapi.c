#include "api/api_openapi.h"

/* The assembler puts the file in as it is; CMakeLists.txt says that this source depends on it. */
__asm__(".pushsection .rodata\n"
        "api_openapi_begin: .incbin \"api/openapi.json\"\n"
        "api_openapi_end: .byte 0\n"
        ".popsection\n");

extern const char api_openapi_begin[], api_openapi_end[];

const char *api_openapi_text(size_t *out_n_bytes) {
    *out_n_bytes = (size_t)(api_openapi_end - api_openapi_begin);
    return api_openapi_begin;
}
