/* reference: values that another implementation computed for a model, as `kvick eval reference` compares with.
 *
 * Three kinds of files (golden/README.md): real/NAME.json (prompts, greedy ids with gaps, a text),
 * tiny/ARCH/reference.json (cases with logits in files beside it) and real/NAME.logprobs.json (the whole distribution
 * at some positions, in NAME.logprobs.f16 beside it, over the text of NAME.json beside it). Thread: main.   Memory:
 * heap and a mapping, until reference_free. */
#ifndef KVICK_CMD_REFERENCE_H
#define KVICK_CMD_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file_map.h"
#include "base/status.h"

enum reference_kind { REFERENCE_REAL, REFERENCE_TINY, REFERENCE_LOGPROBS };

struct reference_case {
    uint32_t *tokens; /* [n_prompt + n_greedy] */
    int n_prompt, n_greedy;
    double *gaps;        /* [n_greedy] best minus second logit of the reference */
    const float *logits; /* [n_logit_rows][n_vocab], or NULL */
    int n_logit_rows;
    struct file_map logits_file;
};

struct reference {
    enum reference_kind kind;
    bool has_bf16_tables; /* made from a model that was cast to bf16 with its RoPE frequencies and scales */
    int n_vocab;          /* 0: the file does not say */
    struct reference_case *cases;
    int n_cases;
    uint32_t *text; /* [n_text] */
    int n_text;
    int *positions;           /* [n_positions] ascending */
    const uint16_t *logprobs; /* [n_positions][n_vocab] f16, or NULL */
    int n_positions;
    struct file_map logprobs_file;
    double max_kl, max_kl_int8_kv; /* the model's bounds with float and int8 KV, NAN if none is known */
};

/* Errors: STATUS_IO, STATUS_FORMAT with the field in note, STATUS_NOMEM. */
WARN_UNUSED enum status reference_load(struct reference **out_reference, const char *path, struct status_note *note);
void reference_free(struct reference **reference);

/* The longest run of tokens that a comparison needs at once. */
int reference_max_tokens(const struct reference *reference);

#endif
