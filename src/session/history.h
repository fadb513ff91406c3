/* Reading a session's past for the API: events (projected) and entries (raw lines). Opens the log
   file itself; any thread; sees what was durable when it was called. */
#ifndef SESSION_HISTORY_H
#define SESSION_HISTORY_H

#include "base/err.h"
#include "base/json.h"

struct history_query {
    bool has_after;
    int64_t after; /* exclusive: seq of events, position of entries */
    bool ascending;
    uint32_t limit;   /* rows wanted */
    const char *type; /* events: only this type; NULL = all */
    /* Entries: a page whose lines have more bytes ends early, after two rows at the soonest; 0 =
       none does. *out_cut (or NULL) says that one did. */
    size_t bytes_max;
    bool *out_cut;
};
/* New array of events with processedAt filled in (R17, R21), in the order asked for. */
err history_events(const char *logs_dir, const char *tenant, const char *session,
                   const struct history_query *q, json_t **out);
/* New array of {position, entry}; position counts lines from 1 (the header). */
err history_entries(const char *logs_dir, const char *tenant, const char *session,
                    const struct history_query *q, json_t **out);
/* Calls fn for each event with seq > after_seq in order. fn returns false to stop. *out_last_seq =
   the last seq handed over, or after_seq. */
typedef bool (*history_event_fn)(void *arg, int64_t seq, const json_t *event);
err history_replay(const char *logs_dir, const char *tenant, const char *session, int64_t after_seq,
                   history_event_fn fn, void *arg, int64_t *out_last_seq);

/* The seq of the last event in the first `bytes` of the log, which history_bytes gave; 0 = none. */
err history_head(const char *logs_dir, const char *tenant, const char *session, int64_t bytes,
                 int64_t *out_seq);
/* How long the log is now; 0 without one. */
int64_t history_bytes(const char *logs_dir, const char *tenant, const char *session);

#endif
