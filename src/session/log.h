/* One session's log file: Pi's JSONL v3, append-only, control its only writer (LOG.md). Opening
   cuts a torn last line at the last LF. Appends become durable with log_sync. Not thread-safe: the
   session's executor owns the writer; readers use log_read, from any thread. */
#ifndef SESSION_LOG_H
#define SESSION_LOG_H

#include "base/arena.h"
#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

struct session_log;

/* dir is DATA/logs. The file need not exist: it is made (and its folder) with the first append. */
err log_open(const char *dir, const char *tenant, const char *session, struct session_log **out);
void log_close(struct session_log *log);                  /* NULL-safe */
int64_t log_durable_bytes(const struct session_log *log); /* appended and synced; ends at an LF */
bool log_is_empty(const struct session_log *log);
/* Adds one line (without LF; must not contain one). Buffered until log_sync. */
void log_append(struct session_log *log, struct str line);
/* Writes and fdatasyncs what was appended. On error the file is cut back to its last durable length
   and the log refuses further writes until reopened: nothing half-written is ever built upon. */
err log_sync(struct session_log *log);

/* Whole lines, forward, up to the last LF at the time of the call. `line` is borrowed, without LF;
   number counts from 0. The callback returns false to stop. A missing file has no lines. */
typedef bool (*log_line_fn)(void *arg, int64_t number, struct str line);
err log_read(const char *dir, const char *tenant, const char *session, log_line_fn fn, void *arg);
/* The same from the line that starts at byte `offset` and is number `number`. */
err log_read_from(const char *dir, const char *tenant, const char *session, int64_t offset,
                  int64_t number, log_line_fn fn, void *arg);
/* The bytes of an open log file up to its last LF: a line that is being written, or that a crash
   tore, is not part of it. Moves the file's offset. */
err log_whole_bytes(int fd, off_t *out);
err log_remove(const char *dir, const char *tenant, const char *session);
const char *log_path(const char *dir, const char *tenant, const char *session, struct arena *a);

#endif
