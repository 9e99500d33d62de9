/* api_openapi: the description of the API that clients can load, src/api/openapi.json, inside the program.
 *
 * Thread: any. */
#ifndef KVICK_API_API_OPENAPI_H
#define KVICK_API_API_OPENAPI_H

#include <stddef.h>

/* The file's bytes; not terminated. */
const char *api_openapi_text(size_t *out_n_bytes);

#endif
