/* POST {baseUrl}/v1/messages?beta=true. message_start tells the input, message_delta the counts so
   far: they replace, they are never added; null keeps what was there. */
#include "broker/wire.h"

static void replace(int64_t *count, const json_t *usage, const char *key)
{
    const json_t *v = json_object_get(usage, key);
    if (json_is_number(v))
        *count = wire_count(usage, key);
}

static void take_usage(struct wire_meter *m, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    replace(&m->usage.input, usage, "input_tokens");
    replace(&m->usage.output, usage, "output_tokens");
    replace(&m->usage.cache_read, usage, "cache_read_input_tokens");
    replace(&m->usage.cache_write, usage, "cache_creation_input_tokens");
    m->has_usage = true;
}

static void take_delta(struct wire_meter *m, const json_t *delta)
{
    wire_meter_produced(m, json_object_get(delta, "text"));
    wire_meter_produced(m, json_object_get(delta, "thinking"));
    wire_meter_produced(m, json_object_get(delta, "partial_json"));
}

static void on_event(struct wire_meter *m, struct str type, struct str text, const json_t *data)
{
    (void)text;
    struct str kind = json_get_str(data, "type");
    if (kind.p == NULL)
        kind = type;
    if (str_is(kind, "message_start"))
        take_usage(m, json_object_get(json_object_get(data, "message"), "usage"));
    else if (str_is(kind, "content_block_start"))
        wire_meter_produced(m, json_object_get(json_object_get(data, "content_block"), "name"));
    else if (str_is(kind, "content_block_delta"))
        take_delta(m, json_object_get(data, "delta"));
    else if (str_is(kind, "message_delta"))
        take_usage(m, json_object_get(data, "usage"));
    else if (str_is(kind, "message_stop"))
        m->finished = true;
    else if (str_is(kind, "error"))
        wire_meter_fault(m, json_object_get(data, "error"));
}

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 402:
        return "billing_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

static json_t *error_body(int status, const char *code, const char *message)
{
    (void)code; /* the shape has no place for it */
    return json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", error_type(status),
                     "message", message);
}

const struct wire_api wire_anthropic_messages = {
    .name = "anthropic-messages",
    .target = "/v1/messages?beta=true",
    .target_also = "/v1/messages",
    .auth_header = "x-api-key",
    .auth_prefix = "",
    .models = "/v1/models",
    .models_header = "anthropic-version",
    .models_value = "2023-06-01",
    .passes_unnamed = true,
    .on_event = on_event,
    .error_body = error_body,
};
