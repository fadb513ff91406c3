/* Incremental reader of server-sent events (WHATWG), for metering model streams: bytes in, events
   out, in pieces of any size. One owner at a time. Memory is bounded: an event longer than the
   limit is dropped whole and counted. */
#ifndef BROKER_SSE_READER_H
#define BROKER_SSE_READER_H

#include "base/buf.h"

struct sse_event {   /* borrowed for the call */
    struct str type; /* "message" when the stream named none */
    struct str data;
    struct str last_id;
};

typedef void (*sse_event_fn)(void *arg, const struct sse_event *event);

struct sse_reader {
    sse_event_fn on_event;
    void *arg;
    size_t event_max; /* bytes of one line, and of one event's data */
    size_t dropped;   /* events that were too long */
    struct buf line, type, data, id;
    bool has_data;
    bool after_cr;   /* a LF that comes now belongs to the CR before it */
    bool beyond_bom; /* the first line was read */
    bool too_long;   /* this event is dropped at its end */
};

void sse_reader_init(struct sse_reader *r, size_t event_max, sse_event_fn on_event, void *arg);
void sse_reader_done(struct sse_reader *r);
void sse_reader_feed(struct sse_reader *r, struct str bytes);

#endif
