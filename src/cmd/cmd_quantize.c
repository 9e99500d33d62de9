/* quantize: copies a GGUF file with its matrices in another type. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmd/cmd.h"
#include "cmd/cmd_model.h"
#include "kernels/dequantize.h"
#include "kernels/quantize.h"
#include "weights/file_type.h"
#include "weights/gguf_write.h"

/* A task is a piece of whole blocks of any type; a batch of them is computed, then written. */
#define PIECE_ELEMENTS 65536
#define BATCH_PIECES 16

struct quantize {
    const struct options *options;
    char in_path[CMD_MODEL_MAX_PATH_BYTES];
    const char *out_path;
    struct gguf *gguf;
    struct gguf_write *writer;
    struct file_type type;
    struct file_type_place place;
    struct thread_pool *pool;
    float *values;  /* [n_threads][PIECE_ELEMENTS] */
    uint8_t *bytes; /* of a batch in its new type */
    struct progress progress;
    struct status_note note;
};

/* ---- types ---- */

static bool can_make(const struct file_type *type) {
    return quantize_is_known(type->matrices) && quantize_is_known(type->output) && quantize_is_known(type->more_bits);
}

static enum status find_type(const char *name, struct file_type *out_type, struct status_note *note) {
    char known[160] = "";
    size_t n = 0;
    if (!name) return status_fail(note, STATUS_INVALID, "--type TYPE is missing");
    for (int i = 0; i < file_type_n(); i++) {
        struct file_type type = file_type_at(i);
        if (!can_make(&type)) continue;
        if (strcmp(type.name, name) == 0) {
            *out_type = type;
            return STATUS_OK;
        }
        if (n < sizeof known) n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", type.name);
    }
    return status_fail(note, STATUS_INVALID, "--type: '%.40s' cannot be made (can be: %s)", name, known);
}

/* What holds no weights, such as a table of integers, stays as it is. */
static enum dtype new_dtype(const struct quantize *quantize, const struct gguf_tensor *tensor) {
    const struct gguf_text *name = &tensor->name;
    if (!dequantize_is_known(tensor->dtype)) return tensor->dtype;
    if (file_type_stays_f32(name->ptr, name->n_bytes, tensor->n_dims)) return DTYPE_F32;
    return file_type_of(&quantize->type, &quantize->place, name->ptr, name->n_bytes, tensor->dims[0]);
}

/* ---- keys ---- */

static bool is_own_key(const char *key) {
    return strcmp(key, "general.file_type") == 0 || strcmp(key, "general.quantization_version") == 0 ||
           strcmp(key, "general.alignment") == 0; /* the writer has one alignment */
}

static enum status copy_texts(struct quantize *quantize, const char *key, const struct gguf_array *array) {
    struct gguf_text *texts = mem_alloc_array((size_t)array->n_items, sizeof *texts);
    if (!texts)
        return status_fail(&quantize->note, STATUS_NOMEM, "no memory for %" PRIu64 " texts of key %s", array->n_items,
                           key);
    size_t cursor = 0, n = 0;
    while (n < array->n_items && gguf_array_next_text(array, &cursor, &texts[n])) n++;
    enum status status = gguf_write_key_texts(quantize->writer, key, texts, n, &quantize->note);
    mem_free(texts);
    return status;
}

static enum status copy_number(struct quantize *quantize, const char *key) {
    struct gguf_array one;
    enum status status = gguf_get_scalar(quantize->gguf, key, &one, &quantize->note);
    if (status) return status;
    switch (one.item_type) {
    case GGUF_F32:
    case GGUF_F64:
        return gguf_write_key_real(quantize->writer, key, one.item_type, gguf_array_real(&one, 0), &quantize->note);
    case GGUF_BOOL: return gguf_write_key_bool(quantize->writer, key, gguf_array_int(&one, 0) != 0, &quantize->note);
    default: return gguf_write_key_int(quantize->writer, key, one.item_type, gguf_array_int(&one, 0), &quantize->note);
    }
}

static enum status copy_key(struct quantize *quantize, const char *key, enum gguf_type type) {
    struct gguf_text text;
    struct gguf_array array;
    enum status status;
    if (type == GGUF_TEXT) {
        status = gguf_get_text(quantize->gguf, key, &text, &quantize->note);
        return status ? status : gguf_write_key_text(quantize->writer, key, text.ptr, text.n_bytes, &quantize->note);
    }
    if (type != GGUF_ARRAY) return copy_number(quantize, key);
    status = gguf_get_array(quantize->gguf, key, &array, &quantize->note);
    if (status) return status;
    if (array.item_type == GGUF_TEXT) return copy_texts(quantize, key, &array);
    return gguf_write_key_array(quantize->writer, key, array.item_type, array.bytes, (size_t)array.n_items,
                                &quantize->note);
}

static enum status copy_keys(struct quantize *quantize) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < gguf_n_keys(quantize->gguf) && !status; i++) {
        enum gguf_type type;
        struct gguf_text text = gguf_key(quantize->gguf, i, &type);
        char *key = mem_strndup(text.ptr, text.n_bytes);
        if (!key) return status_fail(&quantize->note, STATUS_NOMEM, "no memory for a key");
        if (!is_own_key(key)) status = copy_key(quantize, key, type);
        mem_free(key);
    }
    struct gguf_write *writer = quantize->writer;
    struct status_note *note = &quantize->note;
    if (!status) status = gguf_write_key_int(writer, "general.file_type", GGUF_U32, quantize->type.gguf_id, note);
    return status ? status : gguf_write_key_int(writer, "general.quantization_version", GGUF_U32, 2, note);
}

/* ---- tensors ---- */

struct batch {
    struct quantize *quantize;
    enum dtype from, to;
    const uint8_t *in;
    uint64_t n_elements;
};

static uint64_t whole_bytes(enum dtype dtype, uint64_t n_elements) {
    uint64_t n_bytes;
    if (dtype_bytes(dtype, n_elements, &n_bytes)) BUG("%s: %" PRIu64 " elements", dtype_name(dtype), n_elements);
    return n_bytes;
}

static void convert_piece(void *arg, int piece_idx, int worker_idx) {
    const struct batch *batch = arg;
    uint64_t from = (uint64_t)piece_idx * PIECE_ELEMENTS, left = batch->n_elements - from;
    int64_t n = left < PIECE_ELEMENTS ? (int64_t)left : PIECE_ELEMENTS;
    float *values = batch->quantize->values + (size_t)worker_idx * PIECE_ELEMENTS;
    dequantize_row(batch->from, batch->in + whole_bytes(batch->from, from), values, n);
    quantize_row(batch->to, values, batch->quantize->bytes + whole_bytes(batch->to, from), n);
}

static enum status write_converted(struct quantize *quantize, const struct gguf_tensor *tensor, enum dtype to) {
    const uint64_t max_elements = (uint64_t)PIECE_ELEMENTS * BATCH_PIECES;
    uint64_t left = 1;
    for (int i = 0; i < tensor->n_dims; i++) left *= tensor->dims[i]; /* the reader has checked the product */
    struct batch batch = {.quantize = quantize, .from = tensor->dtype, .to = to, .in = tensor->bytes};
    enum status status = STATUS_OK;
    while (left && !status) {
        batch.n_elements = left < max_elements ? left : max_elements;
        int n_pieces = (int)((batch.n_elements + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS);
        thread_pool_run(quantize->pool, convert_piece, &batch, n_pieces);
        uint64_t in_bytes = whole_bytes(batch.from, batch.n_elements);
        status = gguf_write_data(quantize->writer, quantize->bytes, (size_t)whole_bytes(to, batch.n_elements),
                                 &quantize->note);
        if (!status) status = progress_add(&quantize->progress, in_bytes, &quantize->note);
        batch.in += in_bytes;
        left -= batch.n_elements;
    }
    return status;
}

static enum status write_tensor(struct quantize *quantize, const struct gguf_tensor *tensor) {
    enum dtype to = new_dtype(quantize, tensor);
    if (to != tensor->dtype) return write_converted(quantize, tensor, to);
    enum status status = gguf_write_data(quantize->writer, tensor->bytes, (size_t)tensor->n_bytes, &quantize->note);
    return status ? status : progress_add(&quantize->progress, tensor->n_bytes, &quantize->note);
}

static enum status announce_tensors(struct quantize *quantize) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < gguf_n_tensors(quantize->gguf) && !status; i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(quantize->gguf, i);
        char *name = mem_strndup(tensor->name.ptr, tensor->name.n_bytes);
        if (!name) return status_fail(&quantize->note, STATUS_NOMEM, "no memory for a name");
        status = gguf_write_tensor(quantize->writer, name, new_dtype(quantize, tensor), tensor->n_dims, tensor->dims,
                                   &quantize->note);
        mem_free(name);
    }
    return status;
}

static enum status write_file(struct quantize *quantize) {
    enum status status = gguf_write_create(&quantize->writer, quantize->out_path, &quantize->note);
    if (!status) status = copy_keys(quantize);
    if (!status) status = announce_tensors(quantize);
    if (!status) status = gguf_write_begin_data(quantize->writer, &quantize->note);
    for (size_t i = 0; i < gguf_n_tensors(quantize->gguf) && !status; i++)
        status = write_tensor(quantize, gguf_tensor_at(quantize->gguf, i));
    return status ? status : gguf_write_finish(quantize->writer, &quantize->note);
}

/* ---- the command ---- */

static uint64_t tensor_bytes(const struct gguf *gguf) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) n_bytes += gguf_tensor_at(gguf, i)->n_bytes;
    return n_bytes;
}

static enum status read_place(struct quantize *quantize) {
    struct gguf_text arch;
    char key[96];
    uint64_t value;
    quantize->place = (struct file_type_place){.is_tied = !gguf_tensor_find(quantize->gguf, "output.weight")};
    enum status status = gguf_get_text(quantize->gguf, "general.architecture", &arch, &quantize->note);
    if (status) return status;
    snprintf(key, sizeof key, "%.*s.block_count", arch.n_bytes < 64 ? (int)arch.n_bytes : 64, arch.ptr);
    status = gguf_get_u64(quantize->gguf, key, &value, &quantize->note);
    if (!status && value > INT32_MAX)
        status = status_fail(&quantize->note, STATUS_FORMAT, "key %s is %" PRIu64, key, value);
    if (!status) quantize->place.n_layers = (int)value;
    if (!status && gguf_has(quantize->gguf, "split.count")) {
        status = gguf_get_u64(quantize->gguf, "split.count", &value, &quantize->note);
        if (!status && value > 1)
            status =
                status_fail(&quantize->note, STATUS_INVALID, "it is one of %" PRIu64 " parts (key split.count)", value);
    }
    return status;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static enum status open_in(struct quantize *quantize, const char *model) {
    enum status status = cmd_model_path(model, quantize->in_path, &quantize->note);
    if (!status) status = gguf_open(&quantize->gguf, quantize->in_path, &quantize->note);
    if (!status) status = read_place(quantize);
    if (status) return status;
    if (is_same_file(quantize->in_path, quantize->out_path))
        return status_fail(&quantize->note, STATUS_INVALID, "IN and OUT are the same file");
    return STATUS_OK;
}

static enum status start_threads(struct quantize *quantize) {
    long n_threads = quantize->options->threads ? quantize->options->threads : cpu_n_usable();
    struct status_note *note = &quantize->note;
    if (n_threads < 1 || n_threads > THREAD_POOL_MAX_THREADS)
        return status_fail(note, STATUS_INVALID, "--threads: %ld is not within 0..%d", n_threads,
                           THREAD_POOL_MAX_THREADS);
    quantize->values = mem_alloc_array((size_t)n_threads * PIECE_ELEMENTS, sizeof *quantize->values);
    quantize->bytes = mem_alloc_array((size_t)PIECE_ELEMENTS * BATCH_PIECES, sizeof(float));
    if (!quantize->values || !quantize->bytes) return status_fail(note, STATUS_NOMEM, "no memory for buffers");
    enum status status = thread_pool_create(&quantize->pool, (int)n_threads);
    return status ? status_fail(note, status, "cannot start %ld threads", n_threads) : status;
}

static int run(struct quantize *quantize, const char *model) {
    enum status status = open_in(quantize, model);
    if (status) return cmd_fail(model, status, &quantize->note);
    status = start_threads(quantize);
    if (status) return cmd_fail(NULL, status, &quantize->note);
    uint64_t in_bytes = tensor_bytes(quantize->gguf), out_bytes = 0;
    for (size_t i = 0; i < gguf_n_tensors(quantize->gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(quantize->gguf, i);
        enum dtype to = new_dtype(quantize, tensor);
        uint64_t n_elements = 1;
        for (int d = 0; d < tensor->n_dims; d++) n_elements *= tensor->dims[d];
        out_bytes += whole_bytes(to, n_elements);
    }
    progress_stop_on_signals();
    progress_start(&quantize->progress, quantize->type.name, in_bytes);
    status = write_file(quantize);
    progress_end(&quantize->progress);
    if (status) return cmd_fail(quantize->out_path, status, &quantize->note);
    printf("%s: type %s, %" PRIu64 " MB from %" PRIu64 " MB of %s\n", quantize->out_path, quantize->type.name,
           out_bytes / 1000000, in_bytes / 1000000, model);
    return 0;
}

int cmd_quantize(const struct options *options, int n_words, const char **words) {
    if (n_words != 2) return cmd_usage("quantize", "two files are needed, IN and OUT; %d given", n_words);
    struct quantize *quantize = mem_alloc(sizeof *quantize);
    if (!quantize) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    quantize->options = options;
    quantize->out_path = words[1];
    int exit_code;
    if (find_type(options->type, &quantize->type, &quantize->note))
        exit_code = cmd_usage("quantize", "%s", quantize->note.text);
    else
        exit_code = run(quantize, words[0]);
    thread_pool_destroy(&quantize->pool);
    gguf_write_destroy(&quantize->writer);
    gguf_close(&quantize->gguf);
    mem_free(quantize->values);
    mem_free(quantize->bytes);
    mem_free(quantize);
    return exit_code;
}
