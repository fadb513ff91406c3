/* clang-format off */
/* The hub hands each session's events to the streams that watch it. The manager publishes after the line is durable;
   a stream attaches only once it has caught up, so nothing is lost or doubled (R18):

     hub_open(session)             from now on the hub remembers the last published seq
     loop: history_replay(after)   send what the log has beyond `after`; after = its last seq
           hub_attach(…, after)    0: live. E_CONFLICT: something newer was published, loop again
     … offer() is called for each frame …
     hub_detach, hub_close

   offer runs on the publisher's thread under the hub's lock: it may only queue and wake, never block or call the hub.
   Frames are borrowed for the call. Any thread. */
/* clang-format on */
#ifndef SESSION_HUB_H
#define SESSION_HUB_H

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

struct hub;
struct hub_topic;
struct hub_reader;

struct hub_frame {
    int64_t seq;          /* 0 for stream-only frames (deltas): no SSE id */
    const char *type;     /* SSE event name */
    struct str json;      /* one line */
    const char *delta_of; /* what eventDeltas must name to get this stream-only frame:
                             "agent.message", "agent.tool_result"; NULL = everyone gets it */
};
typedef void (*hub_offer_fn)(void *arg, const struct hub_frame *frame);

struct hub *hub_new(void);
void hub_free(struct hub *h);
struct hub_topic *hub_open(struct hub *h, const char *session);
void hub_close(struct hub *h, struct hub_topic *t);
err hub_attach(struct hub *h, struct hub_topic *t, int64_t after_seq, hub_offer_fn offer, void *arg,
               struct hub_reader **out);
void hub_detach(struct hub *h,
                struct hub_reader *r); /* when it returns, offer will not be called again */
void hub_publish(struct hub *h, const char *session, const struct hub_frame *frame);

#endif
