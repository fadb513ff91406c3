/* Control's side of the hands protocol: blocking calls on a sandbox's agent socket. One connection
   per call; any thread; a call blocks its thread until the tool ends. */
#ifndef SANDBOX_HANDS_H
#define SANDBOX_HANDS_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

#include "base/json.h"

/* Connects to the agent socket at `path`. E_UNAVAILABLE when nobody listens. */
err hands_connect(const char *path, int *out_fd);
/* Connects and waits for HELLO at most timeout_ms. */
err hands_hello(const char *path, int64_t timeout_ms);

struct hands_call {
    const char *key; /* toolCallId */
    const char *tool;
    struct str input; /* JSON object text */
    const char *cwd;
    int64_t timeout_ms; /* of the tool where it has none itself (R34: bash 120 s) */
    /* Output so far, for streaming (bash). Called on the calling thread; may be NULL. */
    void (*on_update)(void *arg, uint64_t offset, struct str bytes);
    void *arg;
};
/* Runs the call, or attaches if the sandbox knows the key already. *out_result is the RESULT object
   as JSON text. E_CLOSED when the sandbox died under it, E_UNAVAILABLE when it cannot be reached.
 */
err hands_call(const char *path, const struct hands_call *call, struct buf *out_result);
/* Only attaches: E_NOT_FOUND when the sandbox does not know the key (R26). */
err hands_attach(const char *path, const struct hands_call *call, struct buf *out_result);
err hands_cancel(const char *path, const char *key, uint32_t grace_ms);
err hands_ack(const char *path, const char *key);

#endif
