/* What control hears of a model request: that it came, what each attempt used, how it ended. */
#include "broker/exchange_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "broker/control.h"
#include "broker/registry.h"

#include <stdio.h>

int64_t exchange_now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

err exchange_begin(struct exchange *x)
{
    x->request = request_new(x->env->requests, x->registration->session);
    if (x->request == NULL)
        return fail(E_UNAVAILABLE, "too many model requests are under way");
    json_t *m = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I}", "op", "request_begin", "request", x->request->id,
        "session", x->request->session, "bytes", (json_int_t)x->body.n, "inputTokens",
        (json_int_t)wire_estimate_tokens(buf_str(&x->body)), "said", (json_int_t)x->said);
    return control_send(x->env->control, m);
}

/* R28: where the provider told no final counts they are estimated from what went over the wire. */
static json_t *usage_json(const struct exchange *x)
{
    struct wire_usage u = x->meter.usage;
    bool final = x->meter.has_usage && x->meter.finished;
    bool answered =
        x->metering || (x->status == 0 && x->upstream && upstream_sent_body(x->upstream));
    if (!answered || exchange_is_no_answer(x))
        return NULL;
    if (!x->meter.has_usage)
        u.input = wire_estimate_tokens(buf_str(&x->body));
    int64_t produced = (int64_t)((x->meter.produced_bytes + 3) / 4);
    if (!final && u.output < produced)
        u.output = produced;
    json_t *j =
        json_pack("{s:I, s:I, s:I, s:I}", "inputTokens", (json_int_t)u.input, "outputTokens",
                  (json_int_t)u.output, "cacheReadInputTokens", (json_int_t)u.cache_read,
                  "cacheCreationInputTokens", (json_int_t)u.cache_write);
    if (!final)
        json_object_set_new(j, "estimated", json_true());
    return j;
}

static json_t *error_json(const struct exchange *x)
{
    if (x->error_code[0] == 0 || x->aborted)
        return NULL;
    json_t *error = json_object();
    json_object_set_new(error, "code", json_string(x->error_code));
    json_set_str(error, "message", str_of(x->error_text));
    json_object_set_new(error, "unrecoverable", json_boolean(x->unrecoverable));
    return error;
}

static json_t *end_json(struct exchange *x)
{
    exchange_mask_key(x);
    int64_t end_ms = exchange_now_ms(), from_ms = x->go_ms ? x->go_ms : x->begin_ms;
    json_t *ttft = x->first_ms < 0 ? json_null() : json_integer(x->first_ms - from_ms);
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:I, s:b, s:o?, s:o?}", "op", "request_end",
                     "request", x->request->id, "session", x->request->session, "status", x->status,
                     "ttftMs", ttft, "durationMs", (json_int_t)(end_ms - from_ms), "aborted",
                     (int)x->aborted, "usage", usage_json(x), "error", error_json(x));
}

void exchange_report(struct exchange *x)
{
    if (x->request == NULL || x->reported)
        return;
    x->reported = true;
    if (control_send(x->env->control, end_json(x)) != 0)
        log_warn("the end of a model request could not be reported: %s", err_text());
}

void exchange_report_attempt(struct exchange *x, int64_t retry_after_ms)
{
    json_t *m = end_json(x);
    json_object_set_new(m, "holding", json_true());
    if (retry_after_ms >= 0)
        json_object_set_new(m, "retryAfterMs", json_integer(retry_after_ms));
    request_pause(x->request);
    if (control_send(x->env->control, m) != 0)
        log_warn("a failed attempt could not be reported: %s", err_text());
}
