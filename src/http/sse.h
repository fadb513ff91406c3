/* Server-sent events: frames, and one client's bounded queue as a ready-made streaming reply.
   Whoever makes events pushes frames from any thread and never waits; the loop thread drains the
   queue into the connection. When a client reads too slowly its droppable frames (deltas) go first;
   when that is not enough it is hung up on, and resumes by Last-Event-ID.

   A handler:
     struct sse *s = sse_new(&(struct sse_options){.hungry = …, .closed = …, .arg = watcher});
     TRY(sse_reply(ctx, s));            headers, first comment, `retry: 3000`; heartbeats are the
   server's … hand `s` to whoever pushes … sse_unref(s);                      the handler's own
   reference A long replay must not be pushed at once: push a bounded part each time `hungry` says
   that the client took everything, from a job on a thread of its own (http/workers.h).

   Ownership: counted references: one from sse_new, one held by the connection until `closed` has
   run; take one for each job or list that keeps the pointer. Pushing to a stream that is gone is
   harmless. Lock order: sse_push may be called with the hub's lock held (level 7 below 6). The
   callbacks run on the loop thread with no lock of this file held. */
#ifndef HTTP_SSE_H
#define HTTP_SSE_H

#include "http/http.h"

struct buf;
struct sse;

struct sse_options {
    size_t bytes_max;          /* of frames waiting; 0 = 1 MiB */
    void (*hungry)(void *arg); /* everything pushed was taken; also once at the start. Must not
                                  block. NULL-able */
    void (*closed)(
        void *arg);           /* the client left, was too slow, or sse_end was drained. NULL-able */
    void (*freed)(void *arg); /* the last reference went: free arg here. Any thread. NULL-able */
    void *arg;
};

/* Appends one frame: `id:` unless id is 0, `event:` unless type is NULL, one `data:` line (more
   only if the data holds line breaks, which ours never do). */
void sse_format(struct buf *out, int64_t id, const char *type, struct str data);

struct sse *sse_new(const struct sse_options *options);
struct sse *sse_ref(struct sse *s);
void sse_unref(struct sse *s); /* NULL-safe */

/* Makes the stream the reply of this request. Once per sse. */
err sse_reply(struct ctx *ctx, struct sse *s);

enum sse_kind {
    SSE_KEEP,     /* must arrive: when it does not fit, the client is hung up on */
    SSE_DROPPABLE /* a delta: may be left out for a slow client */
};
/* Queues whole frames, copied. False: nobody will get them any more, stop pushing. */
bool sse_push(struct sse *s, struct str frames, enum sse_kind kind);
/* Bytes that can be pushed now without dropping anything; 0 when gone. For replays. */
size_t sse_room(struct sse *s);
/* Ends the stream after what was pushed. */
void sse_end(struct sse *s);

#endif
