/* The projection: log line → events. One pure, forward, deterministic function (LOG.md, R17): it
   never looks ahead, never renumbers. Frozen by golden vectors in tests/vectors/projection. One
   thread at a time. */
#ifndef SESSION_PROJECTION_H
#define SESSION_PROJECTION_H

#include "base/json.h"

struct projection;

struct projection *projection_new(const char *session);
void projection_free(struct projection *p); /* NULL-safe */
/* The same state in an object of its own. */
struct projection *projection_copy(const struct projection *p);
/* The state as JSON (new reference) and back, for a process that comes later; NULL when it was
   saved by rules that are not these. */
json_t *projection_save(const struct projection *p);
struct projection *projection_restore(const char *session, const json_t *saved);
int64_t projection_seq(const struct projection *p); /* of the last event; 0 before the first */

/* Called for each event in order; `event` is {id, type, seq, createdAt, processedAt, sessionId, …};
   take a reference to keep it. */
typedef void (*projection_event_fn)(void *arg, int64_t seq, json_t *event);
/* Feeds one line. One that is no JSON object is counted and skipped, never an end. */
void projection_feed(struct projection *p, struct str line, projection_event_fn fn, void *arg);
void projection_feed_json(struct projection *p, const json_t *entry, projection_event_fn fn,
                          void *arg);
int64_t projection_bad_lines(const struct projection *p);

/* Streams announce what the model says before its line exists, so agent.thinking and agent.message
   take their ids from the line of the request's span.model_request_start, at these indices
   (thinking counts up), when one stands before them; in an imported log they take them from their
   own line like every other event. */
#define PREVIEW_MESSAGE 0x10000u
#define PREVIEW_THINKING 0x20000u

/* True for a session.status_idle after which a processed user.message that Pi has not written as
   message(user) never will be: its text does not wait for one any more. */
bool projection_drops_handed(const json_t *event);

/* The id of event `index` of a line. `out` has ID_MAX bytes; returns out. */
const char *projection_event_id(const char *session, const char *line_id, int64_t line_at_ms,
                                unsigned index, char *out);

#endif
