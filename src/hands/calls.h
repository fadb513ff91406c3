/* The tool calls this sandbox knows, by key (the tool call id). A call runs once, on its own
   thread; its output so far and its result outlive every connection and are kept until the key is
   acknowledged (R26). Any thread. Lock order: the table, then one call. */
#ifndef HANDS_CALLS_H
#define HANDS_CALLS_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct call;

#define CALL_KEY_MAX 512
#define CALL_LOG_MAX                                                                               \
    ((size_t)256 << 10) /* output kept for those who attach; the oldest goes first */

/* Finds the call of this key or starts it; *out is a reference for call_unref. `take_request`, the
   CALL object, is consumed in any case. E_QUOTA when too many are known or no thread can be had. */
err call_start(struct str key, json_t *take_request, struct call **out);
/* NULL if unknown, else a reference. */
struct call *call_find(struct str key);
void call_unref(struct call *c);
/* Asks the tool to end: TERM, grace_ms, KILL. E_NOT_FOUND if unknown; OK if it ended already. */
err call_cancel(struct str key, uint32_t grace_ms);
/* Forgets it; one that still runs is forgotten at its end. */
void call_forget(struct str key);
/* Writes UPDATE frames from `offset` on, then the RESULT, to the socket. Ends early when the peer
 * is gone. */
err call_follow(struct call *c, uint64_t offset, int fd);

/* For tools, on the call's own thread. */
void call_output(struct call *c, struct str bytes);
int call_cancel_fd(const struct call *c); /* readable once cancelled */
bool call_cancelled(struct call *c, uint32_t *out_grace_ms);

#endif
