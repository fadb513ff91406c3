/* POST {baseUrl}/chat/completions, as OpenAI and most others speak it. Usage comes in the last
   chunk (Pi asks for it with stream_options.include_usage); compatible servers send it with any
   chunk, so the last one wins. */
#include "broker/wire.h"

static void take_usage(struct wire_meter *m, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    int64_t read = wire_count(details, "cached_tokens");
    if (read == 0)
        read = wire_count(usage, "prompt_cache_hit_tokens"); /* DeepSeek */
    if (read == 0)
        read = wire_count(usage, "cached_tokens"); /* Moonshot */
    int64_t write = wire_count(details, "cache_write_tokens");
    int64_t prompt = wire_count(usage, "prompt_tokens");
    m->usage = (struct wire_usage){.input = prompt > read + write ? prompt - read - write : 0,
                                   .output = wire_count(usage, "completion_tokens"),
                                   .cache_read = read,
                                   .cache_write = write};
    m->has_usage = true;
}

static void take_choice(struct wire_meter *m, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    wire_meter_produced(m, json_object_get(delta, "content"));
    wire_meter_produced(m, json_object_get(delta, "reasoning_content"));
    wire_meter_produced(m, json_object_get(delta, "reasoning"));
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call)
    {
        const json_t *function = json_object_get(call, "function");
        wire_meter_produced(m, json_object_get(function, "name"));
        wire_meter_produced(m, json_object_get(function, "arguments"));
    }
    if (json_is_string(json_object_get(choice, "finish_reason")))
        m->finished = true; /* not every server sends [DONE] */
    take_usage(m, json_object_get(choice, "usage"));
}

static void on_event(struct wire_meter *m, struct str type, struct str text, const json_t *data)
{
    (void)type;
    if (str_is(text, "[DONE]"))
        m->finished = true;
    size_t i;
    json_t *choice;
    json_array_foreach(json_object_get(data, "choices"), i, choice)
    {
        take_choice(m, choice);
    }
    take_usage(m, json_object_get(data, "usage"));
    const json_t *error = json_object_get(data, "error");
    if (json_is_object(error))
        wire_meter_fault(m, error);
}

static json_t *error_body(int status, const char *code, const char *message)
{
    return json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", message, "type",
                     status < 500 ? "invalid_request_error" : "api_error", "param", "code", code);
}

const struct wire_api wire_openai_completions = {
    .name = "openai-completions",
    .target = "/chat/completions",
    .auth_header = "Authorization",
    .auth_prefix = "Bearer ",
    .models = "/models",
    .on_event = on_event,
    .error_body = error_body,
};
