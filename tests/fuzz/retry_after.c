/* sources: src/broker/fault.c src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c src/base/err.c */
/* sources: src/base/str.c src/base/arena.c src/base/clock.c */
/* When a provider wants to be asked again, in whatever words: never a negative time beyond "it did
   not say", never more than a day. The input is the two headers and the body, each behind a LF. */
#include "broker/fault.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, n);
    text[n] = 0;
    char *after = strchr(text, '\n'), *body = after ? strchr(after + 1, '\n') : NULL;
    if (body) {
        *after++ = 0;
        *body++ = 0;
        struct str whole = {body, n - (size_t)(body - text)};
        int64_t ms =
            fault_retry_after_ms(*text ? text : NULL, *after ? after : NULL, whole, 1796040000000);
        if (ms < -1 || ms > 86400000)
            abort();
        (void)fault_of_answer(429, whole);
    }
    free(text);
    return 0;
}
