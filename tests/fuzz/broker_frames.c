/* sources: src/broker/frames.c src/broker/registry.c src/base/json.c src/base/json_scan.c src/base/buf.c */
/* sources: src/base/mem.c src/base/err.c src/base/str.c src/base/arena.c src/base/clock.c */
/* sources: src/base/fd.c src/base/id.c src/base/secret.c src/base/lock.c */
/* Bytes on the link between control and the broker: frames come out whole or the link is refused;
   what comes out is an object with an "op"; a session_open is registered or refused. A frame
   survives being written again. */
#include "broker/frames.h"
#include "broker/protocol.h"
#include "broker/registry.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_round_trip(const json_t *message)
{
    AUTO_BUF again = {0};
    AUTO_JSON back = NULL;
    size_t used = 0;
    must(broker_frame_encode(message, &again) == 0);
    must(broker_frame_parse(buf_str(&again), &used, &back) == 0);
    must(used == again.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct registry *registry = registry_new();
    struct str rest = {(const char *)data, n};
    for (;;) {
        AUTO_JSON message = NULL;
        size_t used = 0;
        if (broker_frame_parse(rest, &used, &message) != 0 || used == 0)
            break;
        must(used <= rest.n && json_is_object(message) && json_get_c(message, "op"));
        check_round_trip(message);
        const char *token = json_get_c(message, "token");
        if (registry_open(registry, message) == 0) {
            struct registration *g = registry_find(registry, json_get_str(message, "token"));
            must(g != NULL);
            registration_unref(g);
        } else if (token) {
            registry_close(registry, token);
        }
        rest = (struct str){rest.p + used, rest.n - used};
    }
    registry_free(registry);
    return 0;
}
