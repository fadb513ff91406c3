/* What went wrong with a model request, in the codes of protocol.h, and what it says to people. */
#include "broker/exchange_state.h"

#include "base/clock.h"
#include "base/lock.h"
#include "broker/fault.h"
#include "broker/registry.h"

#include <stdio.h>
#include <strings.h>

/* A failed answer is short: one that does not come on is taken as it is. */
#define READ_AHEAD_IDLE_MS 5000

/* The answer has said its last word, or what went wrong, or something that Pi cannot read either: a
   host hangs up then, and that is no abort. How it ended decides whether there is another attempt
   (R24). */
static bool is_told(const struct exchange *x)
{
    return x->metering && (x->meter.fault_type[0] || x->meter.finished || x->meter.unreadable > 0);
}

/* Says what went wrong with the connection, or notes that it was given up. */
void exchange_note_failure(struct exchange *x, err e)
{
    if (e == E_CLOSED && is_told(x)) {
        exchange_judge_answer(x);
        return;
    }
    x->aborted = e == E_CLOSED || request_state(x->request, NULL) == REQUEST_CANCELLED;
    if (x->aborted) {
        snprintf(x->error_code, sizeof x->error_code, "%s", "");
        return;
    }
    const char *code = strcmp(err_code(), err_code_of(e)) == 0 ? "model_unreachable" : err_code();
    snprintf(x->error_code, sizeof x->error_code, "%s", code);
    snprintf(x->error_text, sizeof x->error_text, "%s", err_text());
}

static void set_fault(struct exchange *x, const struct fault *fault)
{
    x->unrecoverable = fault->unrecoverable;
    snprintf(x->error_code, sizeof x->error_code, "%s", fault->code);
}

/* What people read of a failed answer: what it means, its status, and the provider's own words. */
static void describe(struct exchange *x, struct str body)
{
    char text[ERROR_TEXT_MAX] = "";
    const struct fault *fault = fault_of_answer(x->status, body);
    set_fault(x, fault);
    bool found = wire_error_text(body, text, sizeof text);
    snprintf(x->error_text, sizeof x->error_text, "%s (status %d%s%s)", fault->says, x->status,
             found ? ": " : "", text);
}

void exchange_classify_status(struct exchange *x)
{
    if (x->status < 200 || x->status >= 300)
        describe(x, STR(""));
}

bool exchange_read_ahead(struct exchange *x, int64_t *out_retry_after_ms)
{
    size_t n = 1;
    err e = 0;
    upstream_limit_idle(x->upstream, READ_AHEAD_IDLE_MS);
    while (!e && n > 0 && x->ahead.n < ERROR_BODY_MAX) {
        buf_reserve(&x->ahead, ERROR_BODY_MAX);
        e = upstream_read(x->upstream, x->ahead.p + x->ahead.n, ERROR_BODY_MAX - x->ahead.n, &n);
        x->ahead.n += e ? 0 : n;
    }
    if (e == E_CLOSED)
        return false;
    struct str body = buf_str(&x->ahead);
    describe(x, body); /* one that broke off says what it says */
    *out_retry_after_ms = fault_retry_after_ms(upstream_header(x->upstream, "retry-after-ms"),
                                               upstream_header(x->upstream, "retry-after"), body,
                                               clock_wall_ms(clock_real()));
    return !x->unrecoverable;
}

bool exchange_is_no_answer(const struct exchange *x)
{
    return x->metering && x->meter.api && !x->event_stream && !x->meter.started &&
           !x->meter.has_usage && !x->meter.finished;
}

void exchange_judge_answer(struct exchange *x)
{
    if (!x->metering) {
        describe(x, buf_str(&x->own));
    } else if (x->meter.fault_type[0]) {
        const char *text = x->meter.fault_text[0] ? x->meter.fault_text : x->meter.fault_type;
        const struct fault *fault = fault_of_stream(x->meter.fault_type, text);
        set_fault(x, fault);
        snprintf(x->error_text, sizeof x->error_text, "%s%s%s", fault->says ? fault->says : "",
                 fault->says ? ": " : "", text);
    } else if (x->meter.api && !x->meter.finished && x->meter.reader.dropped == 0 &&
               x->meter.unreadable == 0) {
        set_fault(x, fault_find("model_stream_broken"));
        snprintf(x->error_text, sizeof x->error_text, "%s",
                 exchange_is_no_answer(x)
                     ? "what came back is no model's answer (a web page, perhaps of a proxy)"
                     : "the model provider's answer ended before it was complete");
    } else if (x->meter.api && wire_meter_choked(&x->meter)) {
        set_fault(x, fault_find("model_stream_broken"));
        snprintf(x->error_text, sizeof x->error_text,
                 "the model provider's answer holds something that is no JSON");
    }
}

/* A provider's message may repeat what it was sent. */
void exchange_mask_key(struct exchange *x)
{
    struct registration *g = x->registration;
    AUTO_LOCK(&g->key_lock);
    if (g->key == NULL)
        return;
    struct str key = secret_bytes(g->key);
    char *from = x->error_text;
    for (char *hit; (hit = memmem(from, strlen(from), key.p, key.n)) != NULL; from = hit + key.n)
        memset(hit, '*', key.n);
}
