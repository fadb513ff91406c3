/* sources: src/broker/sse_reader.c src/broker/wire.c src/broker/wire_openai_completions.c */
/* sources: src/broker/wire_anthropic_messages.c src/broker/wire_openai_responses.c */
/* sources: src/broker/wire_google_generative_ai.c src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c */
/* sources: src/base/err.c src/base/str.c src/base/arena.c src/base/clock.c */
/* A provider's stream, whatever it holds: the meter reads it without harm, counts are never
   negative, and how the bytes were cut into pieces changes nothing. The first byte picks the API,
   the second the size of the pieces. */
#include "broker/wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void meter(struct wire_meter *m, const struct wire_api *api, struct str text, size_t piece)
{
    wire_meter_init(m, api);
    for (size_t at = 0; at < text.n; at += piece) {
        size_t some = text.n - at < piece ? text.n - at : piece;
        wire_meter_feed(m, (struct str){text.p + at, some});
    }
    wire_meter_done(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct wire_api *const apis[] = {&wire_openai_completions,
                                                  &wire_anthropic_messages, &wire_openai_responses,
                                                  &wire_google_generative_ai};
    if (n < 2)
        return 0;
    struct str text = {(const char *)data + 2, n - 2};
    struct wire_meter whole, pieces;
    meter(&whole, apis[data[0] % 4], text, text.n ? text.n : 1);
    meter(&pieces, apis[data[0] % 4], text, data[1] + 1u);
    must(memcmp(&whole.usage, &pieces.usage, sizeof whole.usage) == 0);
    must(whole.finished == pieces.finished && whole.has_usage == pieces.has_usage);
    must(whole.produced_bytes == pieces.produced_bytes);
    must(whole.unreadable == pieces.unreadable);
    must(strcmp(whole.fault_type, pieces.fault_type) == 0);
    must(whole.usage.input >= 0 && whole.usage.output >= 0);
    must(whole.usage.cache_read >= 0 && whole.usage.cache_write >= 0);
    must(wire_estimate_tokens(text) >= 0);
    for (size_t i = 0; i < 4; i++)
        wire_names_model(apis[i], text, text, "m");
    char message[64];
    wire_error_text(text, message, sizeof message);
    return 0;
}
