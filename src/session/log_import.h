/* A session's log that comes from elsewhere: Pi's JSONL, from `pi-managed export` or a local Pi. It
   is checked line by line while it comes and lies beside the log's place until it is whole; its
   header gets the new session's id and the sandbox's working directory, everything else stays as it
   is, byte for byte. One thread at a time; a fuzz target. */
#ifndef SESSION_LOG_IMPORT_H
#define SESSION_LOG_IMPORT_H

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

#define LOG_IMPORT_LINE_MAX ((size_t)64 << 20)

struct log_import;

/* `dir` is DATA/logs. */
err log_import_begin(const char *dir, const char *tenant, const char *session,
                     struct log_import **out);
/* E_INVALID (invalid_log) naming the line when it is no log of Pi's: no header of version 3, no
   JSON object, no id, an id twice, a parent that no line before it has. */
err log_import_feed(struct log_import *i, struct str bytes);
/* A last line may lack its LF. The log is at its place, durable; *out_bytes is its length. Frees
   `i`, whatever happens. */
err log_import_finish(struct log_import *take_i, int64_t *out_bytes);
void log_import_abort(struct log_import *take_i); /* NULL-safe */

#endif
