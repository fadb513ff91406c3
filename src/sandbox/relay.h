/* Carries one terminal of a sandbox to a client: an EXEC conversation (hands/frames.h) between two
   sides of which neither is trusted. The client opens it with EXEC {pty: {rows, cols}, env:
   {TERM}}; what is executed is ours. Then STDIN and RESIZE go in, STDOUT comes out, and EXIT or
   ERROR ends it. Every frame is judged, and those with JSON are made anew. A slow side makes the
   other wait. */
#ifndef SANDBOX_RELAY_H
#define SANDBOX_RELAY_H

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct relay_options {
    const struct clock *clock;
    int64_t opening_ms; /* the client must have said EXEC by then */
    int64_t idle_ms;    /* nothing went either way for so long: it is ended */
    int64_t
        linger_ms; /* for the client to leave at the end, having taken all; 0: once it is sent */
};

/* Blocks until it ended; both sockets are borrowed. `early`: what the client said already. The
   client was told how it ended, unless it left. Returns why, for the log: 0 when the command ended,
   E_CLOSED when the client or the sandbox left, E_TIMEOUT, E_INVALID when one of them misbehaved.
   One thread; SIGPIPE does not matter. */
err relay_run(int client, struct str early, int hands, const struct relay_options *options);

#endif
