/* POST {baseUrl}/models/<id>:streamGenerateContent?alt=sse. Usage is on every chunk, the last wins;
   there is no terminator but a finishReason. Thoughts are counted beside the candidates, cached
   tokens inside the prompt. */
#include "broker/wire.h"

static void take_usage(struct wire_meter *m, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    int64_t cached = wire_count(usage, "cachedContentTokenCount");
    int64_t prompt =
        wire_count(usage, "promptTokenCount") + wire_count(usage, "toolUsePromptTokenCount");
    m->usage = (struct wire_usage){.input = prompt > cached ? prompt - cached : 0,
                                   .output = wire_count(usage, "candidatesTokenCount") +
                                             wire_count(usage, "thoughtsTokenCount"),
                                   .cache_read = cached};
    m->has_usage = true;
}

static void take_candidate(struct wire_meter *m, const json_t *candidate)
{
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(json_object_get(candidate, "content"), "parts"), i, part)
    {
        wire_meter_produced(m, json_object_get(part, "text"));
        const json_t *call = json_object_get(part, "functionCall");
        if (call == NULL)
            continue;
        AUTO_BUF arguments = {0};
        json_write(call, &arguments);
        AUTO_JSON text = json_str(buf_str(&arguments));
        wire_meter_produced(m, text);
    }
    if (json_is_string(json_object_get(candidate, "finishReason")))
        m->finished = true;
}

static void on_event(struct wire_meter *m, struct str type, struct str text, const json_t *data)
{
    (void)type;
    (void)text;
    size_t i;
    json_t *candidate;
    json_array_foreach(json_object_get(data, "candidates"), i, candidate)
    {
        take_candidate(m, candidate);
    }
    if (json_get_c(json_object_get(data, "promptFeedback"), "blockReason"))
        m->finished = true;
    take_usage(m, json_object_get(data, "usageMetadata"));
    const json_t *error = json_object_get(data, "error");
    if (json_is_object(error))
        wire_meter_fault(m, error);
}

static const char *status_word(int status)
{
    switch (status) {
    case 400:
        return "INVALID_ARGUMENT";
    case 401:
        return "UNAUTHENTICATED";
    case 403:
        return "PERMISSION_DENIED";
    case 404:
        return "NOT_FOUND";
    case 429:
        return "RESOURCE_EXHAUSTED";
    default:
        return "FAILED_PRECONDITION";
    }
}

static json_t *error_body(int status, const char *code, const char *message)
{
    return json_pack("{s:{s:i, s:s, s:s, s:[{s:s}]}}", "error", "code", status, "message", message,
                     "status", status_word(status), "details", "reason", code);
}

const struct wire_api wire_google_generative_ai = {
    .name = "google-generative-ai",
    .target = "/models/*:streamGenerateContent?alt=sse",
    .auth_header = "x-goog-api-key",
    .auth_prefix = "",
    .models = "/models",
    .reads_last = true,
    .on_event = on_event,
    .error_body = error_body,
};
