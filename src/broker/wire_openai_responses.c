/* POST {baseUrl}/responses. Named events; usage rides on the terminal one. */
#include "broker/wire.h"

static void take_usage(struct wire_meter *m, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    const json_t *details = json_object_get(usage, "input_tokens_details");
    int64_t read = wire_count(details, "cached_tokens");
    int64_t write = wire_count(details, "cache_write_tokens");
    int64_t input = wire_count(usage, "input_tokens");
    m->usage = (struct wire_usage){.input = input > read + write ? input - read - write : 0,
                                   .output = wire_count(usage, "output_tokens"),
                                   .cache_read = read,
                                   .cache_write = write};
    m->has_usage = true;
}

static void take_end(struct wire_meter *m, const json_t *response)
{
    m->finished = true;
    take_usage(m, json_object_get(response, "usage"));
    const json_t *error = json_object_get(response, "error");
    if (json_is_object(error))
        wire_meter_fault(m, error);
}

static void on_event(struct wire_meter *m, struct str type, struct str text, const json_t *data)
{
    (void)text;
    struct str kind = json_get_str(data, "type"); /* some servers leave the event name out */
    if (kind.p == NULL)
        kind = type;
    if (str_is(kind, "response.completed") || str_is(kind, "response.incomplete") ||
        str_is(kind, "response.failed")) {
        take_end(m, json_object_get(data, "response"));
    } else if (str_is(kind, "error")) {
        const json_t *error = json_object_get(data, "error");
        wire_meter_fault(m, json_is_object(error) ? error : data);
    } else if (str_ends(kind, STR(".delta"))) {
        wire_meter_produced(m, json_object_get(data, "delta"));
    }
}

static json_t *error_body(int status, const char *code, const char *message)
{
    return wire_openai_completions.error_body(status, code, message);
}

const struct wire_api wire_openai_responses = {
    .name = "openai-responses",
    .target = "/responses",
    .auth_header = "Authorization",
    .auth_prefix = "Bearer ",
    .models = "/models",
    .reads_last = true,
    .on_event = on_event,
    .error_body = error_body,
};
