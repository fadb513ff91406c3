/* What a session's agent left in /mnt/session/outputs, as files (§16.6, §21). They are taken out of
   the sandbox when somebody lists them; one that did not change keeps its id, one that is gone
   there goes here. Afterwards they are files like others, and outlive the session. */
#ifndef API_FILE_OUTPUTS_H
#define API_FILE_OUTPUTS_H

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

struct ctx;

/* Of the outputs that are no files yet: how many will be with the next request, and how many (at
   least) will not be: beyond the first 10,000, with names that are no UTF-8, in folders that cannot
   be read. */
struct file_outputs_rest {
    uint64_t waiting, left_out;
};

/* Copies at most 1000 new ones. E_NOT_FOUND for the session, E_CONFLICT (session_not_idle) while it
   works, E_QUOTA when they do not fit. Blocks until all are copied: a worker. */
err file_outputs_refresh(struct ctx *ctx, struct str session, struct file_outputs_rest *out);

#endif
