/* A reply that a thread of its own writes while it is sent: for what takes time and is too much to
   hold. The writer waits while the client has not taken what there is. */
#ifndef API_FEED_H
#define API_FEED_H

#include "http/http.h"

#define FEEDS_MAX 64 /* at once; more is E_UNAVAILABLE (overloaded) */

struct feed;
/* Runs on the feed's thread. An error before anything was written is the reply to the request; one
   after that cuts the connection, so that nobody takes half for the whole. */
typedef err (*feed_writer)(struct feed *f, void *arg);

/* Starts the writer and waits until it wrote something, ended, is well under way (feed_check), or
   took long. take_arg is freed with
   free_arg after its end, in any case. Worker thread. */
err feed_begin(feed_writer write, void *take_arg, void (*free_arg)(void *), struct feed **out);
/* Instead of a reply_… function, after feed_begin. */
err feed_reply(struct ctx *ctx, const char *content_type, struct feed *take_feed);

/* For the writer: blocks while the queue is full. E_CLOSED: the client is gone. */
err feed_write(struct feed *f, struct str bytes);
/* E_CLOSED when the client is gone: asked where there is nothing to write for long. Says, too, that
   an error of the kind that is a reply of its own is no longer to be expected. */
err feed_check(struct feed *f);

#endif
