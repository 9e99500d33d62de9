/* cost_file: measurements of cost_model on disk, one small text file each, named by the digest of its key.
 *
 * Thread: any.   Memory: none that stays. Writers replace files in one move, so readers see all or nothing of one. */
#ifndef KVICK_PLANNER_COST_FILE_H
#define KVICK_PLANNER_COST_FILE_H

#include "planner/cost_model.h"

#define COST_FILE_MAX_FILES 64

/* Takes the measurement of the model's key from the folder. False, and the model unchanged, if there is none or it is
 * damaged: then one measures anew. */
bool cost_file_load(struct cost_model *model, const char *dir);

/* Keeps the measurement; the folder is made, and its oldest files go when there are more than COST_FILE_MAX_FILES.
 * Errors: STATUS_IO, with the path in note. */
WARN_UNUSED enum status cost_file_save(const struct cost_model *model, const char *dir, struct status_note *note);

#endif
