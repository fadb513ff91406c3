#include "broker/fault.h"

#include "base/json.h"

#include <curl/curl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MAX_MS 86400000.0

static const struct fault faults[] = {
    {"model_unreachable", 424, false, NULL},
    {"model_stream_broken", 424, false, NULL},
    {"model_rate_limited", 424, false, "The model provider wants to be asked less often"},
    {"model_overloaded", 424, false, "The model provider is overloaded or out of order"},
    {"model_bad_request", 400, true, "The model provider does not accept the request"},
    {"model_rejected_key", 401, true,
     "The model provider does not accept the key; check the model_provider_key credential"},
    {"model_no_credit", 402, true,
     "The account behind the model provider's key has no credit or no quota left"},
    {"model_not_found", 404, true, "The model provider does not have this model"},
    {"credential_missing", 403, true, NULL},
    {"credential_refused", 403, true, NULL},
    {"address_not_allowed", 403, true, NULL},
};

const struct fault *fault_find(const char *code)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i].code, code) == 0)
            return &faults[i];
    return &faults[0];
}

bool fault_is_unrecoverable(const char *code)
{
    const struct fault *fault = fault_find(code);
    return strcmp(fault->code, code) == 0 && fault->unrecoverable;
}

static bool says(struct str text, const char *word)
{
    for (size_t at = 0, n = strlen(word); at + n <= text.n; at++)
        if (strncasecmp(text.p + at, word, n) == 0)
            return true;
    return false;
}

/* Limits that no waiting ends, in the words that Pi knows them by too. */
static bool says_no_credit(struct str text)
{
    static const char *const words[] = {
        "GoUsageLimitError",
        "FreeUsageLimitError",
        "Monthly usage limit reached",
        "available balance",
        "insufficient_quota",
        "out of budget",
        "quota exceeded",
        "billing",
        "subscription_sharing_usage_limit_exceeded",
        "subscription_sharing_workplace_individual_usage_limit_exceeded",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (says(text, words[i]))
            return true;
    return false;
}

const struct fault *fault_of_answer(int status, struct str body)
{
    switch (status) {
    case 400: /* Google's word for a key that it does not know */
        return fault_find(says(body, "API_KEY_INVALID") ? "model_rejected_key"
                                                        : "model_bad_request");
    case 401:
    case 403:
        return fault_find("model_rejected_key");
    case 402:
        return fault_find("model_no_credit");
    case 404:
        return fault_find("model_not_found");
    case 429:
        return fault_find(says_no_credit(body) ? "model_no_credit" : "model_rate_limited");
    case 408:
    case 409:
        return fault_find("model_overloaded");
    default:
        return fault_find(status >= 500 ? "model_overloaded" : "model_bad_request");
    }
}

const struct fault *fault_of_stream(const char *type, const char *message)
{
    static const struct {
        const char *word, *code;
    } words[] = {
        {"rate", "model_rate_limited"},       {"RESOURCE_EXHAUSTED", "model_rate_limited"},
        {"overload", "model_overloaded"},     {"server", "model_overloaded"},
        {"api_error", "model_overloaded"},    {"UNAVAILABLE", "model_overloaded"},
        {"INTERNAL", "model_overloaded"},     {"authentication", "model_rejected_key"},
        {"permission", "model_rejected_key"}, {"not_found", "model_not_found"},
        {"invalid", "model_bad_request"},
    };
    if (says_no_credit(str_of(type)) || says_no_credit(str_of(message)))
        return fault_find("model_no_credit");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(type, words[i].word))
            return fault_find(words[i].code);
    return fault_find("model_stream_broken");
}

/* "1.5", "34s"; -1 if it is neither. */
static double seconds(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    while (*end == ' ')
        end++;
    bool whole = end != text && (*end == 0 || strcmp(end, "s") == 0);
    return whole && isfinite(v) && v >= 0 ? v : -1;
}

static int64_t whole_ms(double ms)
{
    return (int64_t)(ms > WAIT_MAX_MS ? WAIT_MAX_MS : ceil(ms));
}

/* {"error":{"details":[{"@type":"…RetryInfo","retryDelay":"34s"}]}}, alone or in an array. */
static const char *retry_delay(const json_t *body)
{
    const json_t *first = json_is_array(body) ? json_array_get(body, 0) : body;
    const json_t *details = json_object_get(json_object_get(first, "error"), "details");
    size_t i;
    json_t *one;
    json_array_foreach(details, i, one)
    {
        const char *delay = json_get_c(one, "retryDelay");
        if (delay)
            return delay;
    }
    return NULL;
}

static int64_t from_body(struct str body)
{
    json_t *parsed = NULL;
    struct err_slot saved;
    err_save(&saved);
    err e = json_read(body, &parsed);
    err_restore(&saved);
    if (e)
        return -1;
    AUTO_JSON j = parsed;
    const char *delay = retry_delay(j);
    double s = delay ? seconds(delay) : -1;
    return s < 0 ? -1 : whole_ms(s * 1000);
}

int64_t fault_retry_after_ms(const char *after_ms, const char *after, struct str body,
                             int64_t wall_ms)
{
    double ms = after_ms ? seconds(after_ms) : -1;
    if (ms >= 0)
        return whole_ms(ms);
    if (after == NULL)
        return from_body(body);
    double s = seconds(after);
    if (s >= 0)
        return whole_ms(s * 1000);
    time_t at = curl_getdate(after, NULL);
    if (at < 0)
        return from_body(body);
    double left = (double)at * 1000 - (double)wall_ms;
    return left > 0 ? whole_ms(left) : 0;
}
