/* iq_grids: the codebooks of the IQ formats, one 16-bit word a point, in the order of the format's indices.
 *
 * They were picked by search when the formats were made, so that no formula gives them; each happens to ascend as a
 * word. Element i of a point is the code at bits 2i (IQ1, IQ2: eight elements) or 4i (IQ3: four); block_codes.c maps
 * codes to values. Thread: any, const.   Source: the format's own tables, as packed in gguf-py's quants.py; the test
 * compares their digests with figures computed from there. */
#ifndef KVICK_KERNELS_IQ_GRIDS_H
#define KVICK_KERNELS_IQ_GRIDS_H

#include <stdint.h>

extern const uint16_t iq_grids_iq1[2048]; /* IQ1_S and IQ1_M: codes 0..2 are -1, 0, 1 */
extern const uint16_t iq_grids_iq2_xxs[256];
extern const uint16_t iq_grids_iq2_xs[512];
extern const uint16_t iq_grids_iq2_s[1024];
extern const uint16_t iq_grids_iq3_xxs[256];
extern const uint16_t iq_grids_iq3_s[512];

#endif
