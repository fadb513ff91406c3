#include "broker/fault.h"

#include <stddef.h>
#include <string.h>

static const struct fault faults[] = {
    {"model_unreachable", 424, false},  {"model_stream_broken", 424, false},
    {"model_rate_limited", 424, false}, {"model_overloaded", 424, false},
    {"model_bad_request", 400, true},   {"model_rejected_key", 401, true},
    {"model_not_found", 404, true},     {"credential_missing", 403, true},
    {"credential_refused", 403, true},  {"address_not_allowed", 403, true},
};

const struct fault *fault_find(const char *code)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i].code, code) == 0)
            return &faults[i];
    return &faults[0];
}

const struct fault *fault_of_status(int status)
{
    switch (status) {
    case 401:
    case 402: /* no credit behind the key */
    case 403:
        return fault_find("model_rejected_key");
    case 404:
        return fault_find("model_not_found");
    case 429:
        return fault_find("model_rate_limited");
    case 408:
        return fault_find("model_overloaded");
    default:
        return fault_find(status >= 500 ? "model_overloaded" : "model_bad_request");
    }
}

const struct fault *fault_of_stream(const char *type)
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
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(type, words[i].word))
            return fault_find(words[i].code);
    return fault_find("model_stream_broken");
}
