/* Model requests on their way to their sessions. Control hears of a request from the broker and of
   what led to it, a tool's result say, from the host: two processes, two sockets. A request tells
   how much its host had said before it; here it waits until all of that was passed on, so that a
   log has cause before effect. A request that ends meanwhile was never told to its session, and
   its end is not either. Calls do not block; any thread. */
#ifndef SESSION_ASKS_H
#define SESSION_ASKS_H

#include "base/json.h"

struct asks;
struct session_manager;

struct asks *asks_new(struct session_manager *m);
/* `said`: messages of its host; not more than those that were passed on already = no waiting. */
void asks_begin(struct asks *a, const char *session, const char *request, int64_t input_tokens,
                int64_t said);
void asks_end(struct asks *a, const char *session, const char *request, const json_t *end);
/* A host has been heard, or is gone. */
void asks_heard(struct asks *a);
/* The broker is gone: nobody waits for an answer to what waits here. */
void asks_forget(struct asks *a);

#endif
